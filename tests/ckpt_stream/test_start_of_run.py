"""The start of a run beside a former driver that is not quite dead, and a ledger that does not show all it holds."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt_stream import start_of_run
from ckpt_stream.decision import Intent
from ckpt_stream.errors import LedgerAhead, LedgerUndecided
from ckpt_stream.ledger import LedgerRecord, digest
from ckpt_stream.ledger_safety import Durability
from ckpt_stream.start_of_run import Start, begin
from ckpt_stream.topics import Topic
from tests.ckpt_stream.moving import QUERY, MovingCheckpoint, offsets
from tests.ckpt_stream.samples import about_to_write, held

pytestmark = pytest.mark.unit

INTENT: Intent = about_to_write(0)


class Files(MovingCheckpoint):
    def write(self, name: str, text: str) -> None:
        self.texts[name] = text

    def create(self, name: str, text: str) -> bool:
        raise AssertionError

    def remove(self, name: str) -> None:
        self.texts.pop(name, None)


class World:
    """A broker of one lane whose ledger this test writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
        self.files, self.stable, self.fences = files, True, 0
        self.last: LedgerRecord | None = None
        self.while_fenced: Callable[[], None] = lambda: None
        self.topics: Any = SimpleNamespace(
            find=lambda name: Topic(name, "ledger-1", 1),
            get=lambda name, role: Topic(name, "topic-1", 1),
            durability=lambda *topics: [Durability(t.name, ((1,),), {"cleanup.policy": "compact"}) for t in topics],
            settle=lambda name: self.stable,
            ensure_ledger=lambda *given: None,
        )
        monkeypatch.setattr(start_of_run, "fence_lanes", self.fence)
        monkeypatch.setattr(start_of_run, "read_ledger_ends", lambda *given: [self.last])

    def fence(self, *_: Any) -> None:
        self.fences += 1
        self.while_fenced()

    def holds(self, batch: int) -> None:
        self.last = held(batch, query_id=QUERY, digest=digest(offsets(batch)))

    def begin(self) -> Start:
        return begin(self.files, self.topics, {}, INTENT, run_id="r", application="", timeout_ms=1, adopt_ledger=False)


@pytest.mark.parametrize(
    ("steps", "batch", "line"),
    [
        (1, 3, "clean resume after batch 3"),
        (2, 4, "batch 4 in doubt: every lane is in the sink already"),
        (3, 4, "clean resume after batch 4"),
    ],
)
def test_what_a_dying_driver_commits_and_notes_during_the_fence_is_compared_with_the_checkpoint_of_that_moment(
    monkeypatch: pytest.MonkeyPatch, steps: int, batch: int, line: str
) -> None:
    files = Files([], begun=3)
    files.move(1)  # batch 3 is in doubt
    under_test = World(monkeypatch, files)
    under_test.holds(2)

    def go_on() -> None:
        files.move(steps)
        under_test.holds(batch)

    under_test.while_fenced = go_on
    assert under_test.begin().reconciliation.line == line
    assert under_test.fences == 1


def test_a_checkpoint_that_is_behind_and_stays_there_is_refused_before_the_fence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    under_test = World(monkeypatch, Files([], begun=3))
    under_test.holds(5)
    with pytest.raises(LedgerAhead):
        under_test.begin()
    assert under_test.fences == 0


def test_a_checkpoint_that_goes_on_all_the_time_is_not_decided_upon_nor_its_driver_fenced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    under_test = World(monkeypatch, Files([1] * 1000, begun=3))
    under_test.holds(3)
    with pytest.raises(LedgerUndecided) as undecided:
        under_test.begin()
    assert undecided.value.restart_may_help
    assert under_test.fences == 0


def test_a_ledger_that_hides_something_behind_the_fence_is_not_decided_upon(monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files([], begun=3)
    files.move(1)
    under_test = World(monkeypatch, files)
    under_test.holds(2)
    under_test.stable = False
    with pytest.raises(LedgerUndecided, match="find-hanging"):
        under_test.begin()
    assert under_test.fences == 1
