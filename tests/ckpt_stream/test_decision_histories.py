"""Random histories of a stream, against a small model of Kafka and Spark: every record is in the sink exactly once.

The model knows source records (numbered), batches (ranges of them, as Spark's offset log pins them), lanes (a record's
number modulo the lanes) and transactions (a lane's records and its ledger record arrive together). What to do is decided
by `reconcile` and `decide` alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ckpt_stream.decision import FIRST_BATCH, Action, Adoption, CheckpointEnd, Intent, decide, reconcile
from ckpt_stream.errors import Refused
from ckpt_stream.ledger import ANCHOR, BATCH, LedgerRecord

pytestmark = pytest.mark.unit

LANES = st.integers(1, 4)


@dataclass
class Checkpoint:
    """Spark's two logs, and what our own files beside them hold."""

    query: str | None = None
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    committed: int | None = None
    adopted: Adoption | None = None
    start: int = 0

    @property
    def newest(self) -> int | None:
        return max(self.ranges, default=None)

    @property
    def next_start(self) -> int:
        return self.start if self.newest is None else self.ranges[self.newest][1]

    def digest(self, batch: int) -> str:
        return f"{self.query}:{batch}:{self.ranges[batch]}"

    def end(self) -> CheckpointEnd:
        return CheckpointEnd(self.query, self.newest, self.committed, {n: self.digest(n) for n in self.ranges})


class AnchorFenced(Exception):
    """A lane was written to between the look at it and its anchor."""


@dataclass(frozen=True)
class Attempt:
    """A task of a driver that died, which has yet to take over its lane: the fence at the next start does not hold it."""

    lane: int
    intent: Intent
    records: tuple[int, ...]


class World:
    def __init__(self) -> None:
        self.checkpoint = Checkpoint()
        self.ledger: list[LedgerRecord | None] = []
        self.topic_id = "topic-1"
        self.sink: Counter[int] = Counter()
        #: Lanes of the running driver (0: none runs), and lanes of it that are done with the batch.
        self.lanes = 0
        self.done: set[int] = set()
        self.queries = 0
        self.attempts: list[Attempt] = []

    @property
    def in_doubt(self) -> int | None:
        return self.checkpoint.end().in_doubt

    @property
    def known(self) -> list[LedgerRecord]:
        """What the lanes of the last division say; other lanes are left over from a wider one."""
        first = self.ledger[0] if self.ledger else None
        lanes = self.ledger[: first.lanes] if first is not None else self.ledger
        return [record for record in lanes if record is not None]

    def intent(self, lanes: int, batch: int = 0) -> Intent:
        checkpoint = self.checkpoint
        digest = checkpoint.digest(batch) if batch in checkpoint.ranges else ""
        adopted = None if checkpoint.newest is None else checkpoint.adopted
        return Intent("s", checkpoint.query or "", lanes, batch, digest, "sink", self.topic_id, adopted)

    def start(
        self,
        lanes: int,
        *,
        adopt: bool = False,
        dies_before_anchor: int | None = None,
        before_anchor: Callable[[int], None] = lambda number: None,
    ) -> None:
        """A driver starts; raises the refusal if there is one, and then nothing has changed."""
        verdict = reconcile(self.checkpoint.end(), self.ledger, self.intent(lanes), adopt_ledger=adopt)
        seen = self.ledger + [None] * (lanes - len(self.ledger))
        self.ledger = list(seen)
        if verdict.adopt is not None:
            first = self.ledger[0]
            assert first is not None
            self.checkpoint.adopted = verdict.adopt
            self.checkpoint.start = first.end["source"]["0"]
        for number, lane in enumerate(verdict.anchors.lanes if verdict.anchors else ()):
            if number == dies_before_anchor:
                return
            before_anchor(number)
            if self.ledger[lane] != seen[lane]:
                raise AnchorFenced
            assert verdict.anchors is not None
            at = verdict.anchors.at
            end = at.end if at.batch >= FIRST_BATCH else {"source": {"0": self.checkpoint.start}}
            self.ledger[lane] = replace(at, lane=lane, lanes=lanes, records=0, kind=ANCHOR, end=end)
        if dies_before_anchor is not None:
            return
        if self.checkpoint.query is None:
            self.queries += 1
            self.checkpoint.query = f"query-{self.queries}"
        self.lanes = lanes
        self.done.clear()

    def plan(self, size: int) -> None:
        first = self.checkpoint.next_start
        number = 0 if self.checkpoint.newest is None else self.checkpoint.newest + 1
        self.checkpoint.ranges[number] = (first, first + size)

    def write_lane(self, lane: int) -> None:
        """The whole life of one lane's task: read the ledger, decide, commit records and ledger record together."""
        assert self.in_doubt is not None
        intent = self.intent(self.lanes, self.in_doubt)
        mine = self.slice_of(lane)
        decision = decide(self.ledger[lane], lane, intent)
        if decision.action is Action.PRODUCE:
            self.sink.update(mine)
            self._append(lane, intent, BATCH, len(mine))
        elif decision.expected is not None:
            assert decision.expected.records == len(mine), "the batch did not replay"
        self.done.add(lane)

    def slice_of(self, lane: int) -> tuple[int, ...]:
        assert self.in_doubt is not None
        first, end = self.checkpoint.ranges[self.in_doubt]
        return tuple(record for record in range(first, end) if record % self.lanes == lane)

    def wake(self, pick: int) -> None:
        """An attempt of a former driver takes over its lane, reads the ledger, decides, and commits."""
        attempt = self.attempts.pop(pick % len(self.attempts))
        try:
            decision = decide(self.ledger[attempt.lane], attempt.lane, attempt.intent)
        except Refused:
            return
        if decision.action is Action.PRODUCE:
            self.sink.update(attempt.records)
            self._append(attempt.lane, attempt.intent, BATCH, len(attempt.records))

    def _append(self, lane: int, intent: Intent, kind: str, records: int = 0) -> None:
        first, end = ({"source": {"0": offset}} for offset in self.checkpoint.ranges[intent.batch])
        self.ledger[lane] = LedgerRecord(
            sink_id="s",
            query_id=intent.query_id,
            run_id="",
            lane=lane,
            lanes=intent.lanes,
            batch=intent.batch,
            digest=intent.digest,
            start=first,
            end=end,
            records=records,
            checksum=0,
            topic="sink",
            topic_id=intent.topic_id,
            application="",
            time="",
            kind=kind,
        )

    def commit(self) -> None:
        self.checkpoint.committed = self.checkpoint.newest
        self.done.clear()

    def die(self, *, leaves_attempts: bool = False) -> None:
        if leaves_attempts and self.lanes and self.in_doubt is not None:
            intent = self.intent(self.lanes, self.in_doubt)
            self.attempts += (Attempt(lane, intent, self.slice_of(lane)) for lane in range(self.lanes))
        self.lanes = 0
        self.done.clear()


class HonestHistories(RuleBasedStateMachine):
    """Crashes at any moment, other lanes wherever nothing of the batch is written, a lost checkpoint taken over at a clean
    stop, and tasks that outlive their driver: never a refusal.
    """

    leaves_attempts = True

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    def stopped(self) -> bool:
        return self.world.lanes == 0

    def running(self) -> bool:
        return self.world.lanes > 0

    def working(self) -> bool:
        return self.running() and self.world.in_doubt is not None

    def start_as_allowed(self, lanes: int, **options: Any) -> None:
        world = self.world
        fresh = world.checkpoint.newest is None
        if fresh and world.known:
            lanes = world.known[0].lanes
        elif begun := [
            r for r in world.ledger if r and (r.query_id, r.batch) == (world.checkpoint.query, world.in_doubt)
        ]:
            lanes = begun[0].lanes
        world.start(lanes, adopt=fresh and bool(world.known), **options)

    @precondition(stopped)
    @rule(lanes=LANES)
    def start(self, lanes: int) -> None:
        self.start_as_allowed(lanes)

    @precondition(stopped)
    @rule(lanes=LANES, number=st.integers(0, 4))
    def start_and_die_before_an_anchor(self, lanes: int, number: int) -> None:
        self.start_as_allowed(lanes, dies_before_anchor=number)

    @precondition(lambda self: self.stopped() and self.world.attempts)
    @rule(lanes=LANES, number=st.integers(0, 3), pick=st.integers(0, 3))
    def start_while_an_old_attempt_wakes(self, lanes: int, number: int, pick: int) -> None:
        with suppress(AnchorFenced):
            self.start_as_allowed(lanes, before_anchor=lambda n: self.world.wake(pick) if n == number else None)

    @precondition(lambda self: self.world.attempts)
    @rule(pick=st.integers(0, 3))
    def an_old_attempt_wakes(self, pick: int) -> None:
        self.world.wake(pick)

    @precondition(lambda self: self.running() and self.world.in_doubt is None)
    @rule(size=st.integers(0, 5))
    def plan(self, size: int) -> None:
        self.world.plan(size)

    @precondition(working)
    @rule(pick=st.integers(0, 3))
    def write_one_lane(self, pick: int) -> None:
        # A second attempt of a lane that is done is a retried task: it must skip.
        self.world.write_lane(pick % self.world.lanes)

    @precondition(working)
    @rule()
    def finish_the_batch(self) -> None:
        for lane in range(self.world.lanes):
            if lane not in self.world.done:
                self.world.write_lane(lane)
        self.world.commit()

    @precondition(running)
    @rule()
    def die(self) -> None:
        self.world.die(leaves_attempts=self.leaves_attempts)

    @precondition(lambda self: self.stopped() and self.world.in_doubt is None and self.world.known)
    @rule()
    def lose_the_checkpoint(self) -> None:
        self.world.checkpoint = Checkpoint()

    @invariant()
    def no_record_is_in_the_sink_twice(self) -> None:
        assert all(times == 1 for times in self.world.sink.values())

    def teardown(self) -> None:
        """Whatever happened, one more driver brings everything to its end, and no record is missing."""
        world = self.world
        world.die()
        self.start_as_allowed(1)
        if world.in_doubt is not None:
            self.finish_the_batch()
        assert world.sink == Counter(range(world.checkpoint.next_start))


class FaultyHistories(HonestHistories):
    """The same with what people do to checkpoints, ledgers and settings: refused, or harmless; never a record twice."""

    #: Of a checkpoint that was rolled back, an attempt may have written the batch that is planned anew: that is refused.
    leaves_attempts = False

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[Checkpoint] = []

    @precondition(lambda self: self.world.checkpoint.newest is not None)
    @rule()
    def copy_the_checkpoint(self) -> None:
        self.copies.append(deepcopy(self.world.checkpoint))

    @precondition(lambda self: self.stopped() and self.copies)
    @rule(pick=st.integers(0, 100), lanes=LANES)
    def roll_back_to_a_copy(self, pick: int, lanes: int) -> None:
        world, newest = self.world, self.world.checkpoint
        world.checkpoint = deepcopy(self.copies[pick % len(self.copies)])
        moved_on = any(self.is_unknown(record) for record in world.known)
        try:
            world.start(lanes)
        except Refused:
            world.checkpoint = newest
        else:
            assert not moved_on, "a checkpoint behind its ledger was accepted"

    def is_unknown(self, record: LedgerRecord) -> bool:
        """Whether a checkpoint cannot know of this record."""
        checkpoint = self.world.checkpoint
        assert checkpoint.newest is not None
        if record.query_id == checkpoint.query:
            return record.batch > checkpoint.newest
        return checkpoint.newest != 0 or checkpoint.adopted != Adoption(record.query_id, record.batch)

    @precondition(lambda self: self.stopped() and self.world.in_doubt is not None)
    @rule(lanes=LANES)
    def change_the_lanes_with_a_batch_in_doubt(self, lanes: int) -> None:
        self.refused_or_harmless(lanes)

    @precondition(lambda self: self.stopped() and self.world.known)
    @rule(lanes=LANES)
    def take_over_the_ledger_with_an_empty_checkpoint(self, lanes: int) -> None:
        world, before = self.world, self.world.checkpoint
        ends = {(record.query_id, record.batch) for record in world.known}
        whole = len(ends) == 1 and len(world.known) == world.known[0].lanes
        world.checkpoint = Checkpoint()
        try:
            world.start(lanes, adopt=True)
        except Refused:
            world.checkpoint = before
        else:
            assert whole, "an unfinished batch was passed over"

    @precondition(lambda self: self.stopped() and self.world.known)
    @rule(lanes=LANES)
    def start_over_on_the_used_ledger(self, lanes: int) -> None:
        before, self.world.checkpoint = self.world.checkpoint, Checkpoint()
        self.must_be_refused(lanes)
        self.world.checkpoint = before

    @precondition(lambda self: self.stopped() and self.world.checkpoint.newest is not None)
    @rule(lanes=LANES)
    def delete_the_ledger_topic(self, lanes: int) -> None:
        before, self.world.ledger = self.world.ledger, []
        self.must_be_refused(lanes)
        self.world.ledger = before

    @precondition(lambda self: self.stopped() and self.world.known)
    @rule(lanes=LANES, adopt=st.booleans())
    def make_the_sink_again(self, lanes: int, adopt: bool) -> None:
        self.world.topic_id = "topic-2"
        self.must_be_refused(lanes, adopt=adopt)
        self.world.topic_id = "topic-1"

    def refused_or_harmless(self, lanes: int) -> None:
        try:
            self.world.start(lanes)
        except Refused:
            return

    def must_be_refused(self, lanes: int, *, adopt: bool = False) -> None:
        with pytest.raises(Refused):
            self.world.start(lanes, adopt=adopt)


#: A failing history is shown soon rather than made as short as possible.
fast = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
    report_multiple_bugs=False,
    phases=(Phase.generate, Phase.shrink),
)
TestHonestHistories = HonestHistories.TestCase
TestHonestHistories.settings = settings(fast, max_examples=80, stateful_step_count=40)
TestFaultyHistories = FaultyHistories.TestCase
TestFaultyHistories.settings = settings(fast, max_examples=120, stateful_step_count=50)
