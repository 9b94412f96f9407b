"""One look: what waits is counted from the committed offsets, and who does not answer is not taken for nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.checkpoint.files import FsspecFiles
from airflow_ckpt.kafka.offsets import Ends, KafkaUnreachable
from airflow_ckpt.runners.base import ENDED, RUNNING, UNKNOWN, VANISHED, DriverState, Handle
from airflow_ckpt.streams import facts, observe
from airflow_ckpt.streams.intent import write_intent
from airflow_ckpt.streams.observe import Sources, read_lag
from airflow_ckpt.streams.preflight import check
from ckpt_stream import look_again
from ckpt_stream.look_again import Unreadable
from ckpt_stream.run_record import RUNS
from tests.airflow_ckpt.streams.samples import T0, TOKEN, a_checkpoint, a_status, a_stream, an_intent, at

pytestmark = pytest.mark.unit

KAFKA = {"bootstrap.servers": "nobody:1"}


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> dict[str, Ends | None]:
    """What Kafka says of the source topics."""
    known: dict[str, Ends | None] = {}
    monkeypatch.setattr(observe, "shared_admin", lambda kafka: None)
    monkeypatch.setattr(observe, "source_ends", lambda admin, topics, pattern: known)
    return known


def lag(**committed: int) -> list[int | None]:
    checkpoint = a_checkpoint(committed_offsets={"orders_in": {p.removeprefix("p"): o for p, o in committed.items()}})
    return [p.records for p in read_lag(a_stream(), KAFKA, checkpoint, T0, with_seconds=False)]


def test_what_waits_is_the_stable_end_less_what_was_committed(topic: dict[str, Ends | None]) -> None:
    topic["orders_in"] = Ends({0: 0, 1: 0}, {0: 100, 1: 50}, {0: 120, 1: 50})
    assert lag(p0=90, p1=50) == [10, 0]


def test_a_partition_that_was_never_read_has_an_unknown_lag_unless_it_is_empty(topic: dict[str, Ends | None]) -> None:
    topic["orders_in"] = Ends({0: 0, 1: 30, 2: 7}, {0: 100, 1: 50, 2: 7}, {0: 100, 1: 50, 2: 7})
    assert lag(p0=90) == [10, None, 0]


def test_a_commit_beyond_an_older_answer_of_kafka_is_no_negative_lag(topic: dict[str, Ends | None]) -> None:
    topic["orders_in"] = Ends({0: 0}, {0: 100}, {0: 100})
    assert lag(p0=105) == [0]


def test_a_topic_that_is_gone_has_no_partitions(topic: dict[str, Ends | None]) -> None:
    topic["orders_in"] = None
    assert lag(p0=90) == []


def test_the_age_is_that_of_the_oldest_waiting_record(
    topic: dict[str, Ends | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic["orders_in"] = Ends({0: 0, 1: 0, 2: 0}, {0: 100, 1: 50, 2: 9}, {0: 100, 1: 50, 2: 9})
    monkeypatch.setattr(observe, "waiting_since", lambda kafka, where: {("orders_in", 0): at(-42).timestamp()})
    checkpoint = a_checkpoint(committed_offsets={"orders_in": {"0": 90, "1": 50, "2": 3}})
    found = read_lag(a_stream(), KAFKA, checkpoint, T0, with_seconds=True)
    assert [p.seconds for p in found] == [42.0, 0.0, None]


def test_kafka_that_does_not_answer_is_said_and_not_taken_for_no_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(*_: Any) -> None:
        raise KafkaUnreachable("Kafka does not answer")

    monkeypatch.setattr(observe, "shared_admin", lambda kafka: None)
    monkeypatch.setattr(observe, "source_ends", no_answer)
    seen = observe.observe(Sources(a_stream(), FsspecFiles(str(tmp_path)), KAFKA, None))
    assert (seen.lag, seen.kafka_error) == (None, "Kafka does not answer")


def test_preflight_without_an_answer_of_kafka_is_a_finding_and_no_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(*_: Any) -> None:
        raise KafkaUnreachable("Kafka does not answer")

    monkeypatch.setattr(facts, "shared_admin", no_answer)
    found = facts.gather(Sources(a_stream(), FsspecFiles(str(tmp_path)), KAFKA, None), a_status("NEW"))
    assert [f.kind for f in check(a_stream(), found)] == ["kafka_unreachable"]


def test_a_checkpoint_that_cannot_be_read_is_a_finding_and_no_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: Any) -> None:
        raise PermissionError("denied")

    files = FsspecFiles(str(tmp_path))
    monkeypatch.setattr(files, "names", denied)
    found = facts.gather(Sources(a_stream(), files, None, None), a_status("NEW"))
    assert {f.kind for f in check(a_stream(), found)} == {"checkpoint_unreadable", "kafka_unreachable"}


class OneDriver:
    """A runner that is asked about one driver."""

    kind = "process"

    def __init__(self, state: str) -> None:
        self.state = DriverState(state, "in the runner's words")

    def look(self, handle: Handle) -> DriverState:
        return self.state


def with_a_torn_run_record(tmp_path: Path, token: str, driver: str) -> Sources:
    files = FsspecFiles(str(tmp_path))
    write_intent(files, an_intent(handle={"kind": "process", "id": "1", "token": TOKEN}))
    files.write(f"{RUNS}/20261117T120000.000000-{token}.json", "")
    return Sources(a_stream(), files, None, OneDriver(driver))  # type: ignore[arg-type]


@pytest.mark.parametrize(("token", "driver"), [(TOKEN, RUNNING), (TOKEN, UNKNOWN), ("another", ENDED)])
def test_a_run_record_that_cannot_be_read_is_no_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str, driver: str
) -> None:
    monkeypatch.setattr(look_again, "PATIENCE_SECONDS", 0)
    with pytest.raises(Unreadable):
        observe.look(with_a_torn_run_record(tmp_path, token, driver))


@pytest.mark.parametrize(("driver", "state"), [(ENDED, "FAILED"), (VANISHED, "LOST")])
def test_a_driver_that_died_while_it_wrote_its_record_is_told_by_its_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, state: str
) -> None:
    monkeypatch.setattr(look_again, "PATIENCE_SECONDS", 0)
    assert observe.look(with_a_torn_run_record(tmp_path, TOKEN, driver)).state == state
