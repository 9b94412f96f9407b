"""The files beside the checkpoint: what a run says about itself is read back, and what is not ours is refused."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from ckpt_stream.errors import RunRecordError, Torn
from ckpt_stream.protocol.run_files.record_files import list_from_json, list_to_json, now, parse_document
from ckpt_stream.protocol.run_files.run_record import (
    FAILED,
    FINISHED,
    KEEP_BATCH_BYTES,
    KEEP_BATCHES,
    RUNNING,
    STARTING,
    STOPPED,
    Failure,
    RunRecord,
    run_name,
)
from ckpt_stream.protocol.run_files.stop_requests import applies_to, asks_to_stop, read_stop, stop_request, was_obeyed

pytestmark = pytest.mark.unit


def batch(number: int, **values: Any) -> dict[str, Any]:
    return {"batch": number, "input_rows": 10, "records": 8, "skipped": 0, "malformed": 2, "dead_letters": 1, **values}


def test_a_run_is_read_back_as_it_was_written() -> None:
    record = RunRecord("20261101T000000.000000-ab", "orders", "ab", driver={"host": "h", "pid": 7}, query_id="q")
    record.enter(STARTING)
    record.enter(RUNNING)
    record.add_batch(batch(0, lanes=[{"lane": 0, "commit_ms": 1.5}]))
    record.failure = Failure("PoisonRecord", "a record", 1, {"topic": "t", "partition": 0, "offset": 5}, False)
    record.enter(FAILED)
    assert RunRecord.from_json(record.to_json()) == record


def test_a_run_that_did_not_fail_is_read_back_without_a_failure() -> None:
    assert RunRecord.from_json(RunRecord("r", "orders").to_json()).failure is None


def test_the_history_keeps_each_state_with_its_time_in_order() -> None:
    record = RunRecord("r", "orders")
    before = now()
    for state in (STARTING, RUNNING, FAILED):
        record.enter(state)
    assert [entry["state"] for entry in record.history] == [STARTING, RUNNING, FAILED]
    times = [entry["time"] for entry in record.history]
    assert [before, *times, now()] == sorted([before, *times, now()])
    assert record.state == FAILED


def test_the_last_hundred_batches_are_kept_and_all_are_counted() -> None:
    record = RunRecord("r", "orders")
    for number in range(KEEP_BATCHES + 50):
        record.add_batch(batch(number, skipped=1 if number == 0 else 0))
        assert record.batches[-1]["batch"] == number
        assert len(record.batches) == min(number + 1, 100)
    assert [b["batch"] for b in record.batches] == list(range(50, 150))
    assert record.totals == {
        "batches": 150,
        "input_rows": 1500,
        "records": 1200,
        "skipped": 1,
        "malformed": 300,
        "dead_letters": 150,
    }


def test_a_batch_of_which_spark_told_nothing_counts_without_rows() -> None:
    record = RunRecord("r", "orders")
    record.add_batch({"batch": 0, "input_rows": None, "records": 3})
    assert (record.totals["batches"], record.totals["input_rows"], record.totals["records"]) == (1, 0, 3)


def test_two_runs_share_no_list() -> None:
    one, two = RunRecord("1", "orders"), RunRecord("2", "orders")
    one.enter(STARTING)
    one.add_batch(batch(0))
    assert (two.history, two.batches, two.totals) == ([], [], {})


def test_sorted_by_name_is_sorted_by_start_in_every_time_zone() -> None:
    start = datetime(2026, 11, 1, 23, 59, 59, 999_999, tzinfo=UTC)
    moments = [start + timedelta(microseconds=n) for n in (0, 1, 10)]
    zones = [timezone(timedelta(hours=h)) for h in (9, -9, 0)]
    names = [run_name(moment.astimezone(zone), "t") for moment, zone in zip(moments, zones, strict=True)]
    assert names == sorted(names)
    assert names[0] == "20261101T235959.999999-t"


def test_the_path_of_a_run_is_its_name() -> None:
    assert RunRecord("20261101T235959.999999-t", "orders").path == "_ckpt/runs/20261101T235959.999999-t.json"


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '"text"', "{}", '{"format": 2}', '{"format": null}'])
def test_a_file_that_is_not_ours_or_of_another_format_is_refused_by_its_kind(text: str) -> None:
    for read in (lambda t: parse_document(t, "stop request"), RunRecord.from_json):
        with pytest.raises(RunRecordError, match=r"stop request|run record") as refusal:
            read(text)
        assert refusal.value.restart_may_help is False


def test_a_run_of_a_newer_format_names_the_known_one_and_what_helps() -> None:
    document = {**json.loads(RunRecord("r", "orders").to_json()), "format": 2}
    with pytest.raises(RunRecordError, match=r"\bformat 1\b.*airflow-ckpt") as refusal:
        RunRecord.from_json(json.dumps(document))
    assert refusal.value.kind == "unknown_format"


def changed(change: dict[str, Any]) -> str:
    document = {**json.loads(RunRecord("r", "orders", failure=Failure("E", "why")).to_json()), **change}
    return json.dumps({name: value for name, value in document.items() if value is not ...})


@pytest.mark.parametrize("change", [{"surprise": 1}, {"failure": {"error": "E", "message": "why", "surprise": 1}}])
def test_fields_of_a_later_version_are_passed_over_so_that_one_can_go_back(change: dict[str, Any]) -> None:
    assert RunRecord.from_json(changed(change)) == RunRecord("r", "orders", failure=Failure("E", "why"))


@pytest.mark.parametrize("change", [{"run": ...}, {"stream": ...}, {"failure": {"error": "E"}}, {"failure": 5}])
def test_a_run_that_lacks_a_field_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RunRecordError, match="run record"):
        RunRecord.from_json(changed(change))


def wide_batch(number: int, partitions: int, lanes: int) -> dict[str, Any]:
    offsets = {"orders": {str(p): 10**12 + number for p in range(partitions)}}
    told = [{"lane": lane, "records": 10**6, "commit_ms": 12.5, "produce_ms": 1234.5} for lane in range(lanes)]
    return batch(number, start=offsets, end=offsets, lanes=told, ended="2026-11-18T12:00:00.000+00:00")


@pytest.mark.parametrize(("partitions", "lanes"), [(1_000, 4), (1_000, 1_000), (10_000, 3_000)])
def test_a_run_record_stays_small_however_wide_the_stream_is(partitions: int, lanes: int) -> None:
    record = RunRecord("r", "orders")
    for number in range(KEEP_BATCHES):
        record.add_batch(batch(number))
    for number in range(KEEP_BATCHES, KEEP_BATCHES + 5):
        record.add_batch(wide_batch(number, partitions, lanes))
    assert len(record.to_json()) < KEEP_BATCH_BYTES + 10_000
    newest = record.batches[-1]
    assert (newest["batch"], newest["ended"], newest["input_rows"]) == (104, "2026-11-18T12:00:00.000+00:00", 10)
    numbers = [b["batch"] for b in record.batches]
    assert numbers == list(range(numbers[0], 105))
    assert record.totals["batches"] == 105


def test_the_newest_batch_tells_its_offsets_and_the_ones_before_it_do_not() -> None:
    record = RunRecord("r", "orders")
    for number in range(3):
        record.add_batch(wide_batch(number, 1_000, 4))
    assert ["end" in b for b in record.batches] == [False, False, True]
    assert record.batches[-1]["end"]["orders"]["999"] == 10**12 + 2
    assert all(len(b["lanes"]) == 4 for b in record.batches)


@pytest.mark.parametrize("run", ["../../../../home/ann/settings", "a/b", "", None, "a\nb"])
def test_a_run_record_cannot_choose_which_file_is_deleted_with_the_oldest_runs(run: str | None) -> None:
    document = {**json.loads(RunRecord("r", "orders").to_json()), "run": run}
    with pytest.raises(RunRecordError, match=re.escape(repr(run))) as refusal:
        RunRecord.from_json(json.dumps(document))
    assert refusal.value.kind == "bad_name"


def test_a_list_is_read_back_and_a_missing_file_is_an_empty_one() -> None:
    poison = [{"topic": "t", "partition": 0, "offset": 5}]
    assert list_from_json(list_to_json(poison), "poison records") == poison
    assert list_from_json(list_to_json([]), "restart history") == []
    assert list_from_json(None, "restart history") == []


def test_an_empty_file_is_torn_and_no_empty_list() -> None:
    with pytest.raises(Torn):
        list_from_json("", "restart history")


@pytest.mark.parametrize("held", [{}, {"entries": None}, {"entries": "abc"}, {"entries": {"a": 1}}, {"entries": [1]}])
def test_a_list_file_without_a_list_is_refused_and_not_taken_for_empty(held: dict[str, Any]) -> None:
    with pytest.raises(RunRecordError, match="restart history") as refusal:
        list_from_json(json.dumps({"format": 1, **held}), "restart history")
    assert refusal.value.kind == "no_list"


def test_a_list_of_a_newer_format_is_refused() -> None:
    with pytest.raises(RunRecordError, match="format 1"):
        list_from_json(json.dumps({"format": 2, "entries": []}), "restart history")


@pytest.mark.parametrize("run", [None, "20261101T235959.999999-t"])
def test_a_stop_request_says_who_why_and_whom(run: str | None) -> None:
    request = parse_document(stop_request("alice", "deployment", run), "stop request")
    assert (request["by"], request["reason"], request["run"]) == ("alice", "deployment", run)
    assert datetime.fromisoformat(request["time"]).tzinfo is not None


BEFORE, BEGUN, AFTER = "2026-11-01T10:00:00.000+00:00", "2026-11-01T10:00:01.000+00:00", "2026-11-01T10:00:02.000+00:00"


def a_run(name: str = "mine", *, named: str = "t", state: str = RUNNING, ended: str = BEGUN) -> RunRecord:
    history = [{"state": STARTING, "time": BEGUN}, {"state": state, "time": ended}]
    return RunRecord(name, "orders", named, state, history)


@pytest.mark.parametrize(
    ("request_", "meant"),
    [
        ({"run": "mine", "token": "t", "time": BEFORE}, True),
        ({"run": None, "token": "t", "time": BEFORE}, True),
        ({"run": None, "token": None, "time": BEGUN}, True),
        ({"run": None, "token": None, "time": BEFORE}, False),
        ({"run": "other", "token": "t", "time": BEFORE}, False),
        ({"run": "other", "token": "u", "time": BEGUN}, False),
        # It crossed the restart: who asked had still seen the run before.
        ({"run": "other", "token": "u", "time": AFTER}, True),
        ({"run": None, "token": "u", "time": AFTER}, True),
    ],
)
def test_a_stop_request_means_the_run_it_names_and_any_run_that_is_older(request_: dict[str, Any], meant: bool) -> None:
    assert applies_to(request_, a_run()) is meant
    assert asks_to_stop(json.dumps({"format": 1, **request_}), a_run()) is meant


def test_a_run_without_a_token_is_not_named_by_a_request_without_one() -> None:
    assert not applies_to({"run": None, "token": "", "time": BEFORE}, a_run(named=""))


@pytest.mark.parametrize(
    ("run", "obeyed"),
    [
        (a_run("named", state=STOPPED, ended=BEFORE), True),  # whatever the clocks say
        (a_run("named", state=FINISHED, ended=AFTER), True),
        (a_run("named", state=FAILED, ended=AFTER), False),
        (a_run("named", state=RUNNING), False),
        (a_run("another", state=STOPPED, ended=AFTER), True),
        (a_run("another", state=STOPPED, ended=BEFORE), False),
    ],
)
def test_a_stop_is_obeyed_by_a_run_that_ended_well_and_by_no_other(run: RunRecord, obeyed: bool) -> None:
    assert was_obeyed({"run": "named", "time": BEGUN}, [run]) is obeyed


def test_a_stop_request_that_cannot_be_read_is_none() -> None:
    assert [read_stop(text) for text in (None, "", "{", "[]", '{"format": 2}')] == [None] * 5
