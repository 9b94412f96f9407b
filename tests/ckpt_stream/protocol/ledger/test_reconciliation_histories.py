"""Random histories of a stream in a model of Kafka and Spark: every record is in the sink exactly once."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ckpt_stream.errors import Refused
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord
from ckpt_stream.protocol.run_files.adoption import Adoption
from tests.ckpt_stream.protocol.ledger.stream_model import AnchorFenced, Checkpoint, World

pytestmark = pytest.mark.unit

LANES = st.integers(1, 4)


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

    #: Of a checkpoint that was rolled back, an attempt may have written the batch that is planned again: that is refused.
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
