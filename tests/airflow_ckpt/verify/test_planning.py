"""A verification while readers do not see all of the ledger, or of the sink: what they may not see is undecided."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.verify import planning
from airflow_ckpt.verify.planning import make_plan
from airflow_ckpt.verify.subject import Subject
from airflow_ckpt.verify.verdict import CLEAN, UNKNOWN, VIOLATED, Verdict
from airflow_ckpt.verify.verification import verify
from ckpt_stream.kafka import topics
from ckpt_stream.protocol.checkpoint.checkpoint_log import input_digest
from ckpt_stream.protocol.ledger.ledger_record import ledger_topic
from ckpt_stream.protocol.verification.consistent_cut import ALL_BATCHES, BatchRange, take_consistent_cut
from tests.ckpt_stream.moving import QUERY, MovingCheckpoint, offsets
from tests.ckpt_stream.samples import held
from tests.support.fake_kafka import FakeBroker

pytestmark = pytest.mark.unit

LEDGER = ledger_topic("orders")
LANES = 2


class World:
    """A stream of two lanes whose ledger lacks what a test takes away; its sink stands still."""

    def __init__(
        self, broker: FakeBroker, folder: Path, *lacks: tuple[int, int], group: int = 30, batches: int = 3
    ) -> None:
        self.broker, self.folder = broker, folder
        broker.topic("orders-out")
        lanes = broker.topic(LEDGER, LANES, cleanup_policy="compact").partitions
        for batch in range(batches):
            for lane in range(LANES):
                if (batch, lane) not in lacks:
                    record = held(batch, lane, LANES, query_id=QUERY, digest=input_digest(offsets(batch)))
                    lanes[lane].write(record.key, record.to_json())
        broker.groups["readers"] = {("source", 0): group}
        for name, text in MovingCheckpoint([], begun=batches).texts.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)

    def open_transaction(self) -> None:
        """One that has written to the ledger and has not ended."""
        lane = self.broker.partition(LEDGER, 1)
        lane.hidden_from = lane.high
        lane.write(b"2/1", b"{}", time.time())

    @property
    def subject(self) -> Subject:
        return Subject("orders", {}, "orders", "orders-out", "readers", FsspecFiles(str(self.folder)))

    def verdict(self) -> Verdict:
        return make_plan(self.subject, depth="ledger").verdict


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the marker of a commit, and for a sink to stand still."""
    monkeypatch.setattr(topics, "MARKER_SECONDS", 0)
    monkeypatch.setattr(planning, "take_consistent_cut", partial(take_consistent_cut, settle_seconds=0))


#: What is taken from the ledger, where the group stands, and what is found of that.
LACKS = [
    ([(2, 0), (2, 1)], 20, "ledger_behind"),
    ([], 40, "group_ahead"),
    ([(1, 1)], 30, "torn_batch"),
]


@pytest.mark.parametrize(("lacks", "group", "kind"), LACKS)
def test_what_is_missing_from_a_ledger_that_can_be_read_whole_is_a_violation(
    broker: FakeBroker, tmp_path: Path, lacks: list[tuple[int, int]], group: int, kind: str
) -> None:
    verdict = World(broker, tmp_path, *lacks, group=group).verdict()
    assert [(f.kind, f.violation) for f in verdict.findings] == [(kind, True)]
    assert verdict.verdict == VIOLATED


@pytest.mark.parametrize(("lacks", "group", "kind"), LACKS)
def test_what_may_lie_behind_an_open_transaction_is_undecided(
    broker: FakeBroker, tmp_path: Path, lacks: list[tuple[int, int]], group: int, kind: str
) -> None:
    world = World(broker, tmp_path, *lacks, group=group)
    world.open_transaction()
    verdict = world.verdict()
    assert [(f.kind, f.violation) for f in verdict.findings] == [(kind, False)]
    assert verdict.verdict == UNKNOWN


def test_what_no_open_transaction_can_hide_stays_a_violation(broker: FakeBroker, tmp_path: Path) -> None:
    world = World(broker, tmp_path)
    lane = broker.partition(LEDGER, 0)
    record = held(1, 0, LANES, query_id=QUERY, digest="of other input")
    lane.log[1] = None
    lane.write(record.key, record.to_json())
    world.open_transaction()
    found = {f.kind: f.violation for f in world.verdict().findings}
    assert (found["mixed_input"], found["ledger_order"]) == (True, True)


def test_a_whole_ledger_has_no_finding(broker: FakeBroker, tmp_path: Path) -> None:
    assert World(broker, tmp_path).verdict().findings == []


@pytest.mark.parametrize("depth", ["ledger", "sink"])
@pytest.mark.parametrize(
    ("wanted", "kinds", "verdict"),
    [(ALL_BATCHES, ["in_flight"], UNKNOWN), (BatchRange(after=0), [], CLEAN)],
    ids=["the one batch", "nothing new"],
)
def test_a_stream_of_which_the_one_batch_is_in_flight_is_not_called_clean(
    broker: FakeBroker, tmp_path: Path, depth: str, wanted: BatchRange, kinds: list[str], verdict: str
) -> None:
    """Behind the batch a transaction is open in the sink, and nothing is read."""
    world = World(broker, tmp_path, group=10, batches=1)
    sink = broker.partition("orders-out")
    sink.hidden_from = 0
    sink.write(b"k", b"v", time.time())
    found = verify(world.subject, depth=depth, batches=wanted)
    assert ([f.kind for f in found.findings], found.verdict) == (kinds, verdict)
    assert (found.last_batch, found.verified_until) == (None, None)
