"""What earlier versions have stored is read by this one: in Airflow's database, beside checkpoints, in Kafka, in work folders.

See `store` for how the files were made. A test that fails here means that an upgrade would lose a deferred task, a budget, a
running driver or a proof; the reader is wrong then, never the file.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from airflow.sdk.exceptions import TaskDeferred
from airflow.serialization.serialized_objects import DagSerialization

from airflow_ckpt.assets import stream_asset
from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.hooks.stream import StreamHook
from airflow_ckpt.links.spark_ui import SparkUiLink
from airflow_ckpt.operators.base import StreamOperator
from airflow_ckpt.operators.verify import ExactlyOnceVerifyOperator
from airflow_ckpt.runners.base import Launch
from airflow_ckpt.runners.process import ProcessRunner
from airflow_ckpt.streams.driver_state import Handle
from airflow_ckpt.streams.goal import Goal
from airflow_ckpt.streams.restart_strategies import ExponentialDelay
from airflow_ckpt.streams.status import StreamStatus
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.supervision.control import StreamControl
from airflow_ckpt.supervision.launch_request import LaunchRequest
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.driver.failure import describe
from ckpt_stream.protocol.data_loss import LostRange
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord, ledger_topic, transactional_id
from ckpt_stream.protocol.settings.config import from_json
from tests.airflow_ckpt.operators.fakes import LATER, FakeControl, a_context
from tests.compatibility.reading import as_stored, read

pytestmark = pytest.mark.unit

OPERATORS = "airflow_ckpt.operators"
#: Each wait of each operator, by the method that goes on after it.
WAITS = {
    (f"{OPERATORS}.submit.SparkStreamSubmitOperator", "has_started"),
    (f"{OPERATORS}.submit.SparkStreamSubmitOperator", "has_batch"),
    (f"{OPERATORS}.resume.SparkStreamResumeOperator", "pause_is_over"),
    (f"{OPERATORS}.resume.SparkStreamResumeOperator", "has_moved"),
    (f"{OPERATORS}.supervise.SparkStreamSuperviseOperator", "look_again"),
    (f"{OPERATORS}.supervise.SparkStreamSuperviseOperator", "restart"),
    (f"{OPERATORS}.supervise.SparkStreamSuperviseOperator", "has_stopped"),
    (f"{OPERATORS}.stop.SparkStreamStopOperator", "has_ended"),
    (f"{OPERATORS}.verify.ExactlyOnceVerifyOperator", "scanned"),
    (f"{OPERATORS}.verify.ExactlyOnceVerifyOperator", "recomputed"),
    ("airflow_ckpt.sensors.progress.CheckpointProgressSensor", "has_moved"),
}


def imported(path: str) -> Any:
    """What a stored class path names."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


# --- Airflow's database ------------------------------------------------------------------------------------------------


def test_every_wait_of_every_operator_is_stored(stored: Path) -> None:
    assert {(task["operator"], task["event"]["then"]) for task in read(stored / "airflow/deferred.json")} >= WAITS


def test_the_triggerer_makes_the_stored_trigger_of_a_deferred_task(stored: Path) -> None:
    for task in read(stored / "airflow/deferred.json"):
        kwargs = task["kwargs"]
        _, again = imported(task["trigger"])(**kwargs).serialize()
        assert as_stored(again, kwargs) == kwargs
        assert Goal.from_dict(kwargs["goal"]).as_dict() == kwargs["goal"]
        assert as_stored(Stream.from_dict(kwargs["stream"]).as_dict(), kwargs["stream"]) == kwargs["stream"]
        if kwargs["handle"]:
            assert Handle.from_dict(kwargs["handle"]).as_dict() == kwargs["handle"]


def test_a_deferred_task_finds_the_method_to_go_on_with(stored: Path) -> None:
    for task in read(stored / "airflow/deferred.json"):
        operator = imported(task["operator"])
        assert callable(getattr(operator, task["method"]))
        assert callable(getattr(operator, task["event"]["then"]))


def test_a_deferred_task_goes_on_with_the_event_of_its_trigger(stored: Path) -> None:
    """It is done, or waits again; a verification is the next test's."""
    gone_on = 0
    for task in read(stored / "airflow/deferred.json"):
        operator = _operator(task)
        if isinstance(operator, ExactlyOnceVerifyOperator):
            continue
        state = task["event"]["status"]["state"] if task["event"]["status"] else "RUNNING"
        control = FakeControl(state)
        control.plans = [LATER]
        with patch.object(StreamHook, "get_conn", lambda self, control=control: control):
            ended = _result_of(operator, task["event"])
        assert ended in (state, "on_event")
        gone_on += 1
    assert gone_on >= 9


def _result_of(operator: StreamOperator, event: Mapping[str, Any]) -> str:
    """The state of the stream in the task's result, or the method that a deferred task goes on with."""
    try:
        return str(operator.on_event(a_context(), event)["state"])
    except TaskDeferred as deferred:
        return str(deferred.method_name)


def test_a_verification_whose_spark_job_is_done_gives_its_verdict(own_copy: Path) -> None:
    found = {}
    for task in read(own_copy / "airflow/deferred.json"):
        operator = _operator(task)
        if not isinstance(operator, ExactlyOnceVerifyOperator):
            continue
        runner = ProcessRunner(own_copy / "work", operator.stream.checkpoint)
        files = FsspecFiles(str(own_copy / "checkpoint"))
        control = StreamControl(StreamAccess(operator.stream, files, None, runner), _no_launch, "dag")
        outcome = control.look_at_job(Handle.from_dict(task["event"]["handle"]), task["kwargs"]["result"], Goal())
        assert outcome.outcome == "reached"
        with patch.object(StreamHook, "get_conn", lambda self, control=control: control):
            found[task["event"]["then"]] = operator.on_event(a_context(), task["event"])
    scanned, recomputed = found["scanned"], found["recomputed"]
    assert (scanned["verdict"], scanned["sink_committed"], scanned["aborted_hidden"]) == ("clean", 30, 11)
    assert [note["kind"] for note in scanned["notes"]] == ["replay_differed"]
    assert (recomputed["verdict"], recomputed["recomputed"], recomputed["lost"]) == ("violated", 30, 1)
    assert {f["kind"] for f in recomputed["findings"]} == {"lost", "alien", "checkpoint_history"}


def _no_launch(order: LaunchRequest) -> Launch:
    raise AssertionError(f"{order.token} was to be started")


def _operator(task: Mapping[str, Any]) -> StreamOperator:
    settings: dict[str, Any] = {"poll_interval": 7, "deferrable": True}
    kind = imported(task["operator"])
    if issubclass(kind, ExactlyOnceVerifyOperator):
        settings["on_violation"] = "warn"
    elif kind.__name__.endswith("Sensor"):
        settings["batches"] = 9
    made: StreamOperator = kind(task_id="task", stream=Stream.from_dict(task["kwargs"]["stream"]), **settings)
    return made


def test_what_a_task_has_noted_is_read_by_its_next_try(stored: Path) -> None:
    state = read(stored / "airflow/state.json")
    noted = state["task_state_store"]
    assert Goal.from_dict(noted["ckpt_goal"]) == Goal(drained=True, ends={"orders_in": {"0": 100}})
    assert StreamStatus(**{**noted["ckpt_status"], "partitions": ()}).state == "RUNNING"
    assert [look["state"] for look in noted["ckpt_history"]][:2] == ["STARTING", "RUNNING"]
    assert state["xcoms"][SparkUiLink.xcom_key] == "http://worker-1.example:4040"


def test_a_serialised_dag_names_operators_and_links_that_are_there(stored: Path) -> None:
    document = read(stored / "airflow/dag.json")
    tasks = [task["__var"] for task in document["dag"]["tasks"]]
    assert {f"{task['_task_module']}.{task['task_type']}" for task in tasks} == {operator for operator, _ in WAITS}
    dag = DagSerialization.from_dict(document)
    for task in tasks:
        kind = imported(f"{task['_task_module']}.{task['task_type']}")
        assert set(task["template_fields"]) <= set(kind.template_fields)
        assert task["_operator_extra_links"] == {link.name: link.xcom_key for link in kind.operator_extra_links}
        assert [link.name for link in dag.get_task(task["task_id"]).operator_extra_links] == ["Spark UI"]
        assert as_stored(Stream.from_dict(task["stream"]).as_dict(), task["stream"]) == task["stream"]


def test_everything_that_the_provider_has_announced_is_still_there(stored: Path) -> None:
    info = read(stored / "airflow/others.json")["provider"]
    kinds = ("operators", "sensors", "hooks", "triggers")
    modules = [name for kind in kinds for entry in info[kind] for name in entry["python-modules"]]
    assert len(modules) >= 8
    for module in modules:
        importlib.import_module(module)
    for path in (*info["notifications"], *info["extra-links"]):
        assert isinstance(imported(path), type)


def test_a_stream_keeps_its_asset(stored: Path) -> None:
    known = read(stored / "airflow/others.json")["asset"]
    asset = stream_asset(Stream.from_dict(known["stream"]))
    assert (asset.name, asset.uri, asset.group) == (known["name"], known["uri"], known["group"])


# --- declarations of streams -------------------------------------------------------------------------------------------


def _streams(stored: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((stored / "streams").glob("*.json")):
        yield path.stem, read(path)


def test_a_declaration_gives_the_same_stream_again(stored: Path) -> None:
    names = []
    for name, known in _streams(stored):
        stream = Stream.from_dict(known["declaration"])
        assert as_stored(stream.as_dict(), known["declaration"]) == known["declaration"]
        assert Stream.from_dict(stream.as_dict()) == stream
        assert hash(Stream.from_dict(stream.as_dict())) == hash(stream)
        names.append(name)
    assert {"full", "minimal", "pattern", "templated", "rendered", "restart-none"} <= set(names)


def test_a_declaration_keeps_the_values_that_json_has_no_kind_for(stored: Path) -> None:
    full = Stream.from_dict(dict(_streams(stored))["full"]["declaration"])
    assert (full.trigger_interval, full.stall_after) == (timedelta(seconds=5), timedelta(minutes=15))
    assert full.restart == ExponentialDelay(
        timedelta(seconds=2), timedelta(minutes=2), 3.0, reset_after=timedelta(hours=2), jitter=0.2, attempts=9
    )
    assert (full.source, full.jars) == (("orders_in", "returns_in"), ("/opt/jars/a.jar",))
    assert full.start_offsets == {"orders_in": {"0": -2, "1": 40}, "returns_in": {"0": -1}}
    rendered = Stream.from_dict(dict(_streams(stored))["rendered"]["declaration"])
    assert (rendered.name, rendered.lanes, rendered.drain) == ("orders", 3, True)


def test_a_driver_reads_the_configuration_that_it_was_given(stored: Path) -> None:
    read_some = 0
    for _, known in _streams(stored):
        if (document := known.get("driver")) is None:
            continue
        config = from_json(json.dumps(document))
        again = {**asdict(config), "sink_id": document["sink_id"], "group": document["group"]}
        assert json.loads(json.dumps(as_stored(again, document))) == document
        assert (config.sink_id, config.group) == (document["sink_id"] or config.name, document["group"] or config.name)
        assert config.accepted_loss == (LostRange("in", 0, 5, 9), LostRange("in", 1, 3, None))
        read_some += 1
    assert read_some >= 4


def test_a_declaration_gives_a_driver_the_configuration_that_it_gave_before(stored: Path) -> None:
    for name, known in _streams(stored):
        if (before := known.get("driver")) is None:
            continue
        now = Stream.from_dict(known["declaration"]).document(before["kafka"], known["token"])
        assert as_stored({**now, "accepted_loss": before["accepted_loss"]}, before) == before, name


# --- Kafka -------------------------------------------------------------------------------------------------------------


def test_a_ledger_record_is_read_and_written_byte_for_byte(stored: Path) -> None:
    kinds = set()
    for found in read(stored / "ledger.json"):
        record = LedgerRecord.from_json(found["value"].encode())
        assert record.to_json().decode() == found["value"]
        assert (record.key.decode(), record.lane) == (found["key"], found["partition"])
        assert ledger_topic(record.sink_id) == found["topic"]
        assert transactional_id(record.sink_id, record.lane) == found["transactional_id"]
        kinds.add((record.kind, record.format))
    assert kinds == {(kind, version) for kind in ("batch", "anchor") for version in (1, 2)}


# --- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["ckpt_stream.", "ckpt_stream.protocol.", "ckpt_stream.a.b."])
def test_an_error_out_of_a_task_is_known_by_its_name_wherever_its_module_is(stored: Path, folder: str) -> None:
    failures = read(stored / "failures.json")
    for known in failures:
        text = known["raised"].replace("ckpt_stream.", folder, 1)
        assert asdict(describe(RuntimeError(text), None)) == known["failure"]
    names = {known["failure"]["error"] for known in failures}
    assert {"LedgerAhead", "DriverAlive", "SinkRejected", "LedgerFormatError", "CheckpointLogError"} <= names
