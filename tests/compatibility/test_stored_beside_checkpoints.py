"""What earlier versions have stored beside a checkpoint, and in the work folders of its drivers, is read by this one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.checkpoint.runs import current_run, read_run, run_names
from airflow_ckpt.runners.launch_note import kafka_without_secrets, read_launch
from airflow_ckpt.runners.process import ProcessRunner
from airflow_ckpt.streams.driver_state import ENDED, VANISHED, Handle
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.streams.submit_intent import SubmitIntent
from airflow_ckpt.supervision.current_driver import current_driver
from airflow_ckpt.supervision.intent_files import read_intent, read_intents
from airflow_ckpt.supervision.observing import look
from airflow_ckpt.supervision.relaunch import last_launch, stream_of
from airflow_ckpt.supervision.resume_plan import budget
from airflow_ckpt.supervision.stream_access import StreamAccess
from airflow_ckpt.verify.checks.replays_check import replays
from airflow_ckpt.verify.kept_verdicts import VERDICTS
from airflow_ckpt.verify.report import as_html
from airflow_ckpt.verify.scan_plan import Plan
from airflow_ckpt.verify.verified_until import not_yet_verified
from ckpt_stream.protocol.checkpoint.checkpoint_log import input_digest
from ckpt_stream.protocol.checkpoint.checkpoint_reader import read_checkpoint
from ckpt_stream.protocol.run_files import restart_history
from ckpt_stream.protocol.run_files.adoption import Adoption, read_adoption
from ckpt_stream.protocol.run_files.record_files import POISON, REPLACED, STOP, list_from_json, replaced
from ckpt_stream.protocol.run_files.replays import accepted_batch
from ckpt_stream.protocol.run_files.restart_history import last_submission, read_history
from ckpt_stream.protocol.run_files.run_record import RunRecord, path_of
from ckpt_stream.protocol.run_files.stop_requests import asks_to_stop, read_stop
from ckpt_stream.protocol.settings.config import from_json
from ckpt_stream.protocol.verification.scan_result import scans_from_json
from ckpt_stream.verify.recompute_documents import take_request
from ckpt_stream.verify.sink_job import job_from_json
from tests.compatibility.reading import as_stored
from tests.compatibility.site import KAFKA

pytestmark = pytest.mark.unit

QUERY = "6f412f34-bb6b-4ac9-89f5-2feca2991dc9"


def files_of(root: Path) -> FsspecFiles:
    return FsspecFiles(str(root / "checkpoint"))


def runner_of(root: Path) -> ProcessRunner:
    return ProcessRunner(root / "work", f"file://{root}/checkpoint")


@pytest.fixture
def files(stored: Path) -> FsspecFiles:
    return files_of(stored)


@pytest.fixture
def runner(stored: Path) -> ProcessRunner:
    return runner_of(stored)


def text_of(files: FsspecFiles, name: str) -> str:
    text = files.read(name)
    assert text is not None
    return text


def runs(files: FsspecFiles) -> Iterator[RunRecord]:
    """Oldest first."""
    for name in run_names(files):
        record = read_run(files, name)
        assert record is not None
        yield record


# --- run records -------------------------------------------------------------------------------------------------------


def test_a_run_record_is_read_with_every_field(files: FsspecFiles) -> None:
    for record in runs(files):
        known = json.loads(text_of(files, path_of(record.run)))
        assert as_stored(json.loads(record.to_json()), known) == known


def test_a_failed_a_killed_a_stopped_and_a_living_run_are_told_apart(files: FsspecFiles) -> None:
    failed, killed, stopped, living = runs(files)
    assert [r.state for r in (failed, killed, stopped, living)] == ["FAILED", "RUNNING", "STOPPED", "RUNNING"]
    assert failed.failure is not None
    assert (failed.failure.error, failed.failure.batch, failed.failure.restart_may_help) == ("PoisonRecord", 2, True)
    assert failed.failure.poison == {
        "topic": "orders", "partition": 0, "offset": 29, "once": True, "reason": "the word ERROR",
    }  # fmt: skip
    assert (stopped.stopping, len(stopped.batches), stopped.totals["records"]) == (True, 3, 30)
    assert current_run(files) == living
    assert stream_of("file:///elsewhere", None, living).source == ("orders_in",)


def test_a_stream_is_seen_as_its_files_say(files: FsspecFiles, runner: ProcessRunner) -> None:
    """The newest driver ended on a signal after a stop was requested: the stream is stopped, and batch 3 is in doubt."""
    intent = read_intent(files)
    assert intent is not None
    status = look(StreamAccess(Stream.from_dict(intent.stream), files, None, runner))
    assert (status.state, status.token) == ("STOPPED", intent.token)
    assert (status.batch, status.in_doubt, status.batches_in_run) == (2, 3, 2)
    assert status.stop is not None


def test_a_stop_request_still_means_the_run_that_it_names(files: FsspecFiles) -> None:
    *_, stopped, living = runs(files)
    request = read_stop(text_of(files, STOP))
    assert request is not None
    assert (request["by"], request["reason"]) == ("dag.supervise manual__3", "maintenance")
    assert asks_to_stop(text_of(files, STOP), living)
    assert request["run"] != stopped.run


# --- restart history and intents ---------------------------------------------------------------------------------------


def test_the_restart_history_keeps_its_budget(files: FsspecFiles) -> None:
    number, history = restart_history.read_newest(files)
    assert number == 6
    assert read_history(files) == history
    assert [e["kind"] for e in history] == ["submit", "restart", "submit", "submit", "submit", "attach"]
    assert len(budget(history[:2])) == 1
    assert budget(history) == []
    assert last_submission(history) == "dag manual__4"


def test_an_entry_is_added_behind_the_stored_ones(own_copy: Path) -> None:
    files = files_of(own_copy)
    _, before = restart_history.read_newest(files)
    assert (
        restart_history.add_entry(files, {"kind": "restart", "token": "t", "time": "2026-11-19T00:00:00.000+00:00"})
        == 7
    )
    assert restart_history.read_newest(files)[1][:-1] == before


def test_intents_are_read_with_their_handles_kills_and_failures(files: FsspecFiles) -> None:
    newest, unstarted, stopped, killed, failed = read_intents(files)
    assert [i.number for i in (newest, unstarted, stopped, killed, failed)] == [5, 4, 3, 2, 1]
    assert [_by(i.killed) for i in (stopped, killed)] == ["dag.submit manual__2", "dag.submit manual__1"]
    assert unstarted.handle is None
    assert unstarted.failed is not None
    assert (newest.killed, newest.failed, newest.runner) == (None, None, "process")
    for intent in (newest, stopped, killed, failed):
        assert Handle.from_dict(intent.handle or {}).token == intent.token
        assert as_stored(Stream.from_dict(intent.stream).as_dict(), intent.stream) == intent.stream
    assert current_driver(files).intent == newest


def _by(note: Any) -> str:
    return str(note["by"])


def test_a_restart_history_and_an_intent_in_a_single_file_are_read(single_files: Path) -> None:
    files = FsspecFiles(str(single_files / "checkpoint"))
    number, history = restart_history.read_newest(files)
    assert (number, [entry["kind"] for entry in history]) == (0, ["submit", "restart"])
    assert len(budget(history)) == 1
    intent = read_intent(files)
    assert isinstance(intent, SubmitIntent)
    assert (intent.number, intent.token, _by(intent.killed)) == (0, history[-1]["token"], "dag.submit manual__1")
    assert "command" not in intent.later
    assert Handle.from_dict(intent.handle or {}).token == intent.token
    assert as_stored(Stream.from_dict(intent.stream).as_dict(), intent.stream) == intent.stream
    assert [record.state for record in runs(files)] == ["FAILED", "RUNNING"]
    assert (
        restart_history.add_entry(files, {"kind": "submit", "token": "t", "time": "2026-11-19T00:00:00.000+00:00"}) == 1
    )
    assert restart_history.read_newest(files)[1][:-1] == history


# --- what drivers and users have noted ---------------------------------------------------------------------------------


def test_a_record_that_counts_as_consumed_stays_consumed(files: FsspecFiles) -> None:
    [poison] = list_from_json(text_of(files, POISON), "list of poison records")
    assert (poison["topic"], poison["partition"], poison["offset"], poison["once"]) == ("orders", 0, 29, True)


def test_a_ledger_that_was_adopted_stays_adopted(files: FsspecFiles) -> None:
    assert read_adoption(files) == Adoption("the-query-before", 7)


def test_replays_that_differed_and_that_were_accepted_are_still_told(files: FsspecFiles) -> None:
    found = list(replays(files, {(QUERY, 1), (QUERY, 3)}))
    assert {(f.kind, f.batch) for f in found} == {("replay_differed", 1), ("replay_accepted", 3)}
    assert accepted_batch(files) == (QUERY, 3)


def test_the_former_plan_of_a_batch_is_found_by_its_digest(files: FsspecFiles) -> None:
    [name] = files.names(REPLACED)
    before = text_of(files, f"{REPLACED}/{name}")
    assert f"{REPLACED}/{name}" == replaced(3, input_digest(before))
    assert before != text_of(files, "offsets/3")


def test_a_verification_goes_on_after_what_was_verified(files: FsspecFiles) -> None:
    wanted = not_yet_verified(files, "sink")
    assert (wanted.after, wanted.query) == (2, QUERY)
    assert read_checkpoint(files).query_id == QUERY


def test_a_plan_and_the_result_of_its_scan_are_read(files: FsspecFiles) -> None:
    [name] = [name for name in files.names(VERDICTS) if name.endswith(".plan")]
    text = text_of(files, f"{VERDICTS}/{name}")
    plan = Plan.from_json(text)
    assert as_stored(json.loads(plan.to_json()), json.loads(text)) == json.loads(text)
    [topic] = plan.topics
    [scan] = scans_from_json(text_of(files, f"{VERDICTS}/{name.replace('.plan', '.result')}"))
    assert (scan.topic, scan.records, scan.uncommitted) == (topic.name, 30, 41)
    assert {index: sums.records for index, sums in scan.batches.items()} == {0: 10, 1: 10, 2: 10}


def test_a_former_verdict_is_still_shown(files: FsspecFiles) -> None:
    [name] = [name for name in files.names(VERDICTS) if name.endswith(".json")]
    verdict = json.loads(text_of(files, f"{VERDICTS}/{name}"))
    assert verdict["verified_until"] == {"batch": 2, "query_id": QUERY}
    assert verdict["verdict"] in as_html(verdict, list(runs(files))[-1].batches)


# --- work folders ------------------------------------------------------------------------------------------------------


def test_drivers_are_found_in_their_work_folders_and_say_how_they_ended(own_copy: Path) -> None:
    files, runner = files_of(own_copy), runner_of(own_copy)
    newest, _, stopped, killed, failed = read_intents(files)
    for intent, code in ((newest, -15), (stopped, -15), (killed, -15), (failed, 1)):
        handle = Handle.from_dict(intent.handle or {})
        assert runner.find(intent.token) == handle
        state = runner.look(handle)
        assert (state.state, state.exit_code) == (ENDED, code)
        (runner.root / intent.token / "exit.json").unlink()
        assert runner.look(handle).state == VANISHED


def test_the_last_launch_can_be_made_again(files: FsspecFiles, runner: ProcessRunner) -> None:
    intent = read_intent(files)
    assert intent is not None
    launch = last_launch(runner.root, runner.checkpoint, intent)
    assert launch.stream == Stream.from_dict(intent.stream)
    assert launch.noted.argv[0] == "/opt/venv/bin/spark-submit"
    assert launch.noted.env == {"PYSPARK_PYTHON": "/opt/venv/bin/python"}
    assert launch.kafka == {"bootstrap.servers": "kafka.example:9092", "sasl.username": "orders"}


def test_the_configuration_in_a_work_folder_is_the_drivers_or_the_jobs(runner: ProcessRunner) -> None:
    jobs = []
    for folder in sorted(runner.root.iterdir()):
        text = (folder / "stream.json").read_text()
        noted = read_launch(runner.root, folder.name)
        assert noted is not None
        assert kafka_without_secrets(runner.root, folder.name)["bootstrap.servers"] == "kafka.example:9092"
        request, rest = take_request(text)
        if not noted.job:
            assert (request, from_json(rest).token) == (None, folder.name)
        elif request is not None:
            assert request.result.endswith(f"{VERDICTS}/{folder.name}.result")
            jobs.append("recompute")
        else:
            [topic] = job_from_json(text).topics
            jobs.append(topic.topic)
    assert sorted(jobs) == ["recompute", "sink", "sink"]


def test_no_secret_is_stored(stored: Path) -> None:
    files = [path for path in stored.rglob("*") if path.is_file()]
    assert len(files) > 50
    assert [path for path in files if KAFKA["sasl.password"] in path.read_text()] == []
