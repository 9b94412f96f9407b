"""One look feeds status and preflight; after a pause, a kill or a wait, the stream is looked at again before it is started."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_ckpt.exceptions import PreflightRefused
from airflow_ckpt.streams.restart_strategies import FixedDelay
from airflow_ckpt.supervision import source_position, start_conditions
from airflow_ckpt.supervision.control import StreamControl
from ckpt_stream.protocol.checkpoint.checkpoint_reader import CheckpointReport
from ckpt_stream.protocol.topic_ends import TopicEnds
from tests.airflow_ckpt.supervision.fakes import TEN_SECONDS, Deployment, sleep_until
from tests.airflow_ckpt.supervision.samples import a_stream

pytestmark = pytest.mark.unit

KAFKA = {"bootstrap.servers": "not-asked.invalid:1"}


@dataclass
class Source:
    """The checkpoint and the source topic of a stream, and how often each was read."""

    offset: int = 0
    earliest: int = 0
    read: dict[str, int] = field(default_factory=lambda: {"checkpoint": 0, "ends": 0, "ages": 0})

    def checkpoint(self, *_: object, **wanted: object) -> CheckpointReport:
        self.read["checkpoint"] += 1
        return CheckpointReport(newest=0, committed=0, committed_offsets={"orders_in": {"0": self.offset}})

    def ends(self, *_: object) -> dict[str, TopicEnds | None]:
        self.read["ends"] += 1
        return {"orders_in": TopicEnds({0: self.earliest}, {0: 100}, {0: 100})}

    def ages(self, *_: object) -> dict[tuple[str, int], float]:
        self.read["ages"] += 1
        return {}

    def loses_records(self, *_: object) -> object:
        self.earliest = 50
        return None


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    found = Source()
    for module in (source_position, start_conditions):
        monkeypatch.setattr(module, "shared_admin", lambda kafka: None)
    monkeypatch.setattr(source_position, "read_checkpoint", found.checkpoint)
    monkeypatch.setattr(source_position, "source_ends", found.ends)
    monkeypatch.setattr(source_position, "waiting_since", found.ages)
    for asked, answer in {
        "partitions_of": [0], "topic_settings": {}, "broker_settings": {}, "_ledger_refusal": None
    }.items():  # fmt: skip
        monkeypatch.setattr(start_conditions, asked, lambda *_, answer=answer: answer)
    return found


@pytest.fixture
def real(tmp_path: Path, source: Source) -> Deployment:
    """A deployment with real preflight over a source that is a fake."""
    return Deployment(tmp_path, a_stream(restart=FixedDelay(3, TEN_SECONDS), stall_after=60))


def control_of(real: Deployment) -> StreamControl:
    return real.control(kafka=KAFKA)


def reads_until_start(real: Deployment, source: Source) -> list[dict[str, int]]:
    """What was read when a driver is started, counted from here."""
    seen: list[dict[str, int]] = []
    source.read.update(checkpoint=0, ends=0, ages=0)
    real.runner.before = lambda token: seen.append(dict(source.read))
    return seen


ONCE, TWICE = {"checkpoint": 1, "ends": 1, "ages": 1}, {"checkpoint": 2, "ends": 2, "ages": 1}


def test_a_submit_reads_checkpoint_and_ends_once_before_its_driver_is_started(real: Deployment, source: Source) -> None:
    seen = reads_until_start(real, source)

    control_of(real).submit()

    assert seen == [ONCE]


def test_a_resume_reads_checkpoint_and_ends_once_from_its_plan_to_its_start(real: Deployment, source: Source) -> None:
    control_of(real).submit()
    real.fails(ago=20)
    seen = reads_until_start(real, source)
    control = control_of(real)

    look = control.look_before_start()
    assert control.plan_resume(look.status).action == "start"
    control.resume(look)

    assert seen == [ONCE]


def test_ages_that_a_look_has_asked_for_are_not_asked_for_again(real: Deployment, source: Source) -> None:
    control = control_of(real)

    control.risks(control.look_before_start(lag_seconds=True))

    assert source.read == ONCE


def test_a_submit_that_attaches_asks_for_no_ages(real: Deployment, source: Source) -> None:
    control_of(real).submit()
    real.says("STARTING", "RUNNING")
    reads_until_start(real, source)

    control_of(real).submit()

    assert source.read == {"checkpoint": 1, "ends": 1, "ages": 0}


def test_status_and_preflight_of_one_look_speak_of_the_same_position(real: Deployment, source: Source) -> None:
    control = control_of(real)
    look = control.look_before_start()
    source.loses_records()

    assert look.status.lag_records == 100
    assert control.preflight(look) == []
    assert [finding.kind for finding in control.preflight()] == ["data_lost"]


def test_after_the_pause_before_a_restart_the_stream_is_looked_at_again(
    real: Deployment, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    control_of(real).submit(submission="a")
    real.fails(ago=4)
    seen = reads_until_start(real, source)
    sleep_until(monkeypatch, lambda: real.fails(ago=11))

    control_of(real).submit(submission="a")

    assert seen == [TWICE]


def test_what_was_lost_during_the_pause_before_a_restart_prevents_it(
    real: Deployment, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    control_of(real).submit(submission="a")
    real.fails(ago=4)
    sleep_until(monkeypatch, lambda: (real.fails(ago=11), source.loses_records()))

    with pytest.raises(PreflightRefused, match="data_lost"):
        control_of(real).submit(submission="a")

    assert len(real.runner.started) == 1


def test_what_was_lost_while_a_stalled_driver_was_killed_prevents_its_restart(real: Deployment, source: Source) -> None:
    control_of(real).submit()
    real.says("STARTING", "RUNNING", ago=120)
    real.runner.on_kill = source.loses_records
    control = control_of(real)

    with pytest.raises(PreflightRefused, match="data_lost"):
        control.resume(control.look_before_start())

    assert (len(real.runner.started), len(real.runner.killed)) == (1, 1)


def test_what_was_lost_while_a_stopping_driver_was_waited_for_prevents_the_next(
    real: Deployment, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    control_of(real).submit()
    run = real.says("STARTING", "RUNNING")
    run.stopping = True
    real.files.write(run.path, run.to_json())
    sleep_until(monkeypatch, lambda: (real.says("STOPPED"), source.loses_records()))

    with pytest.raises(PreflightRefused, match="data_lost"):
        control_of(real).submit()

    assert len(real.runner.started) == 1
