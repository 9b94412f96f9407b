"""The start of a run while an earlier driver is still ending, and with a ledger that hides some of its records."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt_stream.driver import start_of_run
from ckpt_stream.driver.start_of_run import Start, reconcile_at_start
from ckpt_stream.errors import LedgerAhead, LedgerLost, LedgerUndecided
from ckpt_stream.kafka import ledger_comparison
from ckpt_stream.kafka.ledger_safety import Durability
from ckpt_stream.kafka.topics import Topic
from ckpt_stream.protocol.checkpoint.checkpoint_log import input_digest
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord
from ckpt_stream.protocol.ledger.reconciliation import Reconciliation, Resume
from tests.ckpt_stream.moving import QUERY, MovingCheckpoint, offsets
from tests.ckpt_stream.samples import held, sink_of

pytestmark = pytest.mark.unit


class Files(MovingCheckpoint):
    def write(self, name: str, text: str) -> None:
        self.texts[name] = text

    def create(self, name: str, text: str) -> bool:
        raise AssertionError

    def remove(self, name: str) -> None:
        self.texts.pop(name, None)


class World:
    """A broker with a ledger of one lane, which this test writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
        self.files, self.stable, self.fences = files, True, 0
        self.last: LedgerRecord | None = None
        self.while_fenced: Callable[[], None] = lambda: None
        self.topics: Any = SimpleNamespace(
            find=lambda name, **_: Topic(name, "ledger-1", 1),
            get=lambda name, role: Topic(name, "topic-1", 1),
            durability=lambda *topics: [Durability(t.name, ((1,),), {"cleanup.policy": "compact"}) for t in topics],
            wait_until_readable=lambda name: self.stable,
        )
        monkeypatch.setattr(start_of_run, "fence_lanes", self.fence)
        monkeypatch.setattr(start_of_run, "ensure_ledger", lambda *given: None)
        monkeypatch.setattr(ledger_comparison, "read_ledger_ends", lambda *given: [self.last])

    def fence(self, *_: Any) -> None:
        self.fences += 1
        self.while_fenced()

    def holds(self, batch: int) -> None:
        self.last = held(batch, query_id=QUERY, digest=input_digest(offsets(batch)))

    def begin(self) -> Start:
        return reconcile_at_start(
            self.files, self.topics, {}, sink_of(), run_id="r", application="", timeout_ms=1, adopt_ledger=False
        )


@pytest.mark.parametrize(
    ("steps", "batch", "kind"),
    [(1, 3, Resume.CLEAN), (2, 4, Resume.IN_DOUBT_BEGUN), (3, 4, Resume.CLEAN)],
)
def test_what_an_ending_driver_commits_during_the_fence_is_compared_with_the_checkpoint_of_that_moment(
    monkeypatch: pytest.MonkeyPatch, steps: int, batch: int, kind: Resume
) -> None:
    files = Files([], begun=3)
    files.move(1)  # batch 3 is in doubt
    under_test = World(monkeypatch, files)
    under_test.holds(2)

    def finish_a_batch() -> None:
        files.move(steps)
        under_test.holds(batch)

    under_test.while_fenced = finish_a_batch
    assert under_test.begin().reconciliation == Reconciliation(kind, batch)
    assert under_test.fences == 1


def test_a_record_that_readers_see_only_after_the_fence_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The former driver was killed between the commit of its transaction and the marker in the ledger."""
    under_test = World(monkeypatch, Files([], begun=3))
    under_test.holds(1)
    under_test.while_fenced = lambda: under_test.holds(2)
    assert under_test.begin().reconciliation == Reconciliation(Resume.CLEAN, 2)


@pytest.mark.parametrize(
    ("holds", "refusal", "fences"),
    [
        pytest.param(1, LedgerLost, 1, id="a record that readers do not see after the fence either"),
        pytest.param(5, LedgerAhead, 0, id="a checkpoint that is behind the ledger, before the fence"),
    ],
)
def test_a_ledger_that_does_not_fit_the_checkpoint_is_refused(
    monkeypatch: pytest.MonkeyPatch, holds: int, refusal: type[Exception], fences: int
) -> None:
    under_test = World(monkeypatch, Files([], begun=3))
    under_test.holds(holds)
    with pytest.raises(refusal):
        under_test.begin()
    assert under_test.fences == fences


def test_while_the_checkpoint_keeps_moving_nothing_is_decided_and_its_driver_is_not_fenced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    under_test = World(monkeypatch, Files([1] * 1000, begun=3))
    under_test.holds(3)
    with pytest.raises(LedgerUndecided) as undecided:
        under_test.begin()
    assert undecided.value.restart_may_help
    assert under_test.fences == 0


def test_a_ledger_that_still_hides_records_after_the_fence_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files([], begun=3)
    files.move(1)
    under_test = World(monkeypatch, files)
    under_test.holds(2)
    under_test.stable = False
    with pytest.raises(LedgerUndecided, match="find-hanging"):
        under_test.begin()
    assert under_test.fences == 1
