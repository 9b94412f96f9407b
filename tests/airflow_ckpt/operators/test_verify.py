"""The verify operator over a sink in memory: what it verifies, what it keeps, and what the task ends with."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.notifications.events import UNVERIFIED, VIOLATED
from airflow_ckpt.operators.steps import Done, Step, WaitForJob
from airflow_ckpt.operators.verify import ExactlyOnceVerifyOperator
from airflow_ckpt.streams.goal import REACHED, TIMEOUT
from airflow_ckpt.supervision.control import StreamControl
from airflow_ckpt.verify.kept_verdicts import VERDICTS, read_plan
from airflow_ckpt.verify.verification import scan_in_process
from airflow_ckpt.verify.verified_until import not_yet_verified
from ckpt_stream.protocol.run_files.record_files import REPLAYS, list_to_json
from ckpt_stream.protocol.verification.consistent_cut import BatchRange
from ckpt_stream.protocol.verification.scan_result import scans_to_json
from tests.airflow_ckpt.operators.fakes import a_context, make
from tests.airflow_ckpt.supervision.fakes import Deployment
from tests.airflow_ckpt.supervision.samples import a_stream
from tests.airflow_ckpt.verify.sink_in_memory import DEAD, SinkInMemory
from tests.ckpt_stream.moving import QUERY
from tests.fixtures.fake_kafka import broker, clock
from tests.support.fake_kafka import FakeBroker

__all__ = ["broker", "clock"]

pytestmark = pytest.mark.unit

KAFKA = {"bootstrap.servers": "broker:1"}


class World:
    """A stream, its sink of two batches, and the operator that verifies it."""

    def __init__(self, broker: FakeBroker, folder: Path) -> None:
        self.sink = SinkInMemory(broker, folder)
        self.sink.batch()
        self.sink.batch()
        self.deployment = Deployment(folder, a_stream(checkpoint=str(folder), sink=self.sink.subject.sink))
        self.files = self.deployment.files
        self.told: list[str] = []
        self.context = a_context()

    @property
    def control(self) -> StreamControl:
        return self.deployment.control(kafka=KAFKA)

    def operator(self, **settings: Any) -> ExactlyOnceVerifyOperator:
        notify = {"notify": lambda context: self.told.append(context["ckpt"]["event"])}
        made: ExactlyOnceVerifyOperator = make(
            ExactlyOnceVerifyOperator, stream=self.deployment.stream, **{**notify, **settings}
        )
        return made

    def verify(self, **settings: Any) -> dict[str, Any]:
        return verdict_of(self.operator(**settings).begin(self.context, self.control))

    def begin_job(self, **settings: Any) -> tuple[ExactlyOnceVerifyOperator, WaitForJob]:
        operator = self.operator(**settings)
        step = operator.begin(self.context, self.control)
        assert isinstance(step, WaitForJob)
        return operator, step

    def scan(self, step: WaitForJob) -> None:
        """What the Spark job writes."""
        plan = read_plan(self.files, step.handle["token"])
        self.files.write(step.result, scans_to_json(list(scan_in_process(plan, KAFKA))))

    def loses_a_record(self) -> None:
        self.sink.sink.log[4] = None

    @property
    def job_documents(self) -> list[str]:
        return [name for name in self.files.names(VERDICTS) if name.endswith((".plan", ".result"))]

    @property
    def verified_until(self) -> int | None:
        return not_yet_verified(self.files, "sink").after


def verdict_of(step: Step) -> dict[str, Any]:
    assert isinstance(step, Done)
    found: dict[str, Any] = step.value
    return found


def over(step: WaitForJob, outcome: str = REACHED) -> dict[str, Any]:
    """The event of a job that is over."""
    return {"outcome": outcome, "reason": "", "handle": step.handle}


@pytest.fixture
def world(broker: FakeBroker, tmp_path: Path) -> World:
    return World(broker, tmp_path)


def test_the_next_verification_goes_on_behind_what_was_clean(world: World) -> None:
    assert world.verify(since="last")["verdict"] == "clean"
    assert world.verified_until == 1
    world.sink.batch()
    found = world.verify(since="last")
    assert (found["since"], found["first_batch"], found["sink_committed"]) == (2, 2, 3)
    assert (world.verified_until, world.told) == (2, [])


def test_a_violation_fails_the_task_and_is_verified_again(world: World) -> None:
    world.loses_a_record()
    for _ in range(2):
        with pytest.raises(AirflowFailException):
            world.verify(since="last")
    assert (world.verified_until, world.told) == (None, [VIOLATED] * 2)


@pytest.mark.parametrize(("action", "raised"), [("fail", AirflowFailException), ("skip", AirflowSkipException)])
def test_what_a_verdict_does_to_the_task_is_chosen_for_violations_and_for_unknown_ones(
    world: World, action: str, raised: type[Exception]
) -> None:
    world.sink.sink.low = 1
    with pytest.raises(raised):
        world.verify(on_unknown=action, on_violation="warn")
    assert world.verify(on_unknown="warn")["verdict"] == "unknown"
    world.loses_a_record()
    with pytest.raises(raised):
        world.verify(on_violation=action, on_unknown="warn")
    assert world.verify(on_violation="warn")["verdict"] == "violated"
    assert world.told == [UNVERIFIED, UNVERIFIED, VIOLATED, VIOLATED]


@pytest.mark.parametrize(
    ("since", "until", "batches"),
    [("start", None, (0, 2)), ("start", 1, (0, 1)), (0, None, (0, 2)), (1, None, (1, 2)), ("2", None, (2, 2))],
)
def test_the_range_begins_with_the_batch_that_is_named_and_ends_with_the_last_one(
    world: World, since: str | int, until: int | None, batches: tuple[int, int]
) -> None:
    world.sink.batch()
    found = world.verify(since=since, until=until)
    assert (found["first_batch"], found["last_batch"]) == batches


def test_the_range_that_goes_on_ends_with_the_last_batch_that_is_named(world: World) -> None:
    world.verify(since="last", until=0)
    assert world.verified_until == 0
    world.sink.batch()
    assert world.verify(since="last", until=1)["last_batch"] == 1


def test_aborted_copies_are_counted_if_the_task_asks_for_it(world: World) -> None:
    world.sink.write(world.sink.sink, "a", aborted=True)
    world.sink.batch()
    assert world.verify(count_aborted=True)["aborted_hidden"] == 1
    assert world.verify()["aborted_hidden"] is None


@pytest.mark.parametrize(("mirror", "kinds"), [("on_checkpoint", ["group_ahead"]), ("periodic", [])])
def test_the_streams_group_is_compared_if_the_stream_commits_to_it(world: World, mirror: str, kinds: list[str]) -> None:
    world.deployment.stream = replace(world.deployment.stream, offset_mirror=mirror)
    world.sink.broker.groups[world.deployment.stream.config.group] = {("source", 0): 1000}
    found = world.verify(on_violation="warn")
    assert [f["kind"] for f in found["findings"]] == kinds


@pytest.mark.parametrize(("timeout", "kinds"), [(60, ["open_transaction"]), (3600, [])])
def test_how_long_a_transaction_may_be_open_is_up_to_the_stream(world: World, timeout: int, kinds: list[str]) -> None:
    world.deployment.stream = replace(world.deployment.stream, transaction_timeout=timeout)
    world.sink.sink.hidden_from = world.sink.sink.high
    world.sink.sink.write(b"k", b"open", time.time() - 1000)
    found = world.verify(since=0, until=0, on_violation="warn")
    assert [f["kind"] for f in found["findings"]] == kinds


@pytest.mark.parametrize("settings", [{"engine": "spark"}, {"spark_above": 5}])
def test_a_job_reads_the_sink_and_nothing_of_it_stays(world: World, settings: dict[str, Any]) -> None:
    operator, step = world.begin_job(**settings)
    assert len(world.job_documents) == 1, "another worker may go on with the plan"
    world.scan(step)
    found = verdict_of(operator.scanned(world.context, world.control, over(step)))
    assert (found["verdict"], found["sink_committed"]) == ("clean", 6)
    assert (world.verified_until, world.job_documents) == (1, [])


def test_a_small_sink_is_read_by_the_worker(world: World) -> None:
    assert world.verify(spark_above=6)["verdict"] == "clean"
    assert world.deployment.runner.started == []


def test_what_is_missing_when_a_job_has_read_the_sink_is_lost(world: World) -> None:
    operator, step = world.begin_job(engine="spark")
    world.loses_a_record()
    world.scan(step)
    with pytest.raises(AirflowFailException):
        operator.scanned(world.context, world.control, over(step))


@pytest.mark.parametrize(("outcome", "has_result"), [(REACHED, False), ("failed", True), (TIMEOUT, False)])
def test_a_job_without_a_result_is_no_verdict_and_does_not_go_on(world: World, outcome: str, has_result: bool) -> None:
    operator, step = world.begin_job(engine="spark")
    if has_result:
        world.scan(step)
    with pytest.raises(CkptError) as refused:
        operator.scanned(world.context, world.control, over(step, outcome))
    assert refused.value.kind == "no_result"
    assert world.deployment.runner.killed == [step.handle["token"]]
    assert world.verified_until is None


def result_of_a_recomputation(**changes: Any) -> str:
    values = {
        "format": 1, "stream": "orders", "time": "2026-11-17T12:00:00+00:00", "seconds": 1.0, "last_batch": 1,
        "source_records": 6, "expected": 6, "found": 6, "lost": 0, "duplicated": 0, "alien": 0, "unknown": [],
        "examples": [], "sink": "orders_out",
    }  # fmt: skip
    return json.dumps({**values, **changes})


def test_a_recomputation_leaves_no_document_and_does_not_move_the_next_verification(world: World) -> None:
    operator, step = world.begin_job(depth="recompute")
    world.files.write(step.result, result_of_a_recomputation())
    found = verdict_of(operator.recomputed(world.context, world.control, over(step)))
    assert (found["verdict"], world.job_documents, world.verified_until) == ("clean", [], None)


def test_a_replay_that_a_user_accepted_keeps_a_recomputation_from_being_clean(world: World) -> None:
    accepted = {"query_id": QUERY, "batch": 0, "lanes": [0], "run": "r", "time": "t", "accepted": True}
    world.files.write(REPLAYS, list_to_json([accepted]))
    operator, step = world.begin_job(depth="recompute", on_unknown="warn")
    world.files.write(step.result, result_of_a_recomputation())
    found = verdict_of(operator.recomputed(world.context, world.control, over(step)))
    assert (found["verdict"], [f["kind"] for f in found["findings"]]) == ("unknown", ["replay_accepted"])


def test_dead_letters_are_read_by_the_job_too(broker: FakeBroker, tmp_path: Path) -> None:
    world = World(broker, tmp_path)
    broker.topic(DEAD)
    world.sink.dead_letters = True
    world.sink.batch()
    operator, step = world.begin_job(engine="spark", on_violation="warn")
    world.sink.dead.log[0] = None
    world.scan(step)
    found = verdict_of(operator.scanned(world.context, world.control, over(step)))
    assert [f["kind"] for f in found["findings"]] == ["dead_letter_lost"]


def test_the_position_is_that_of_the_depth(world: World) -> None:
    world.verify(since="last", depth="ledger")
    assert world.verified_until is None
    assert not_yet_verified(world.files, "ledger") == BatchRange(1, query=QUERY)
