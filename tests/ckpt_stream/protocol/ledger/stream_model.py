"""A small model of Kafka and Spark, in which `reconcile` and `decide` alone say what to do.

It knows source records (numbered), batches (ranges of them, as Spark's offset log pins them), lanes (a record's number modulo
the lanes) and transactions (a lane's records and its ledger record arrive together).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ckpt_stream.errors import Refused
from ckpt_stream.protocol.checkpoint.intact_checkpoint import IntactCheckpoint
from ckpt_stream.protocol.ledger.batch_to_write import FIRST_BATCH, BatchToWrite, SinkIdentity
from ckpt_stream.protocol.ledger.decision import Action, decide
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, BATCH, LedgerRecord
from ckpt_stream.protocol.ledger.reconciliation import reconcile
from ckpt_stream.protocol.run_files.adoption import Adoption


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

    def end(self) -> IntactCheckpoint:
        return IntactCheckpoint(self.newest, self.committed, self.query, {n: self.digest(n) for n in self.ranges})


class AnchorFenced(Exception):
    """A lane was written to between the look at it and its anchor."""


@dataclass(frozen=True)
class Attempt:
    """A task of a driver that died, which has yet to take over its lane: the fence at the next start does not hold it."""

    lane: int
    to_write: BatchToWrite
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

    def sink_of(self, lanes: int) -> SinkIdentity:
        return SinkIdentity("s", lanes, "sink", self.topic_id)

    def to_write(self, batch: int) -> BatchToWrite:
        checkpoint = self.checkpoint
        assert checkpoint.query is not None
        sink = self.sink_of(self.lanes)
        return BatchToWrite(sink, checkpoint.query, batch, checkpoint.digest(batch), checkpoint.adopted)

    def start(
        self,
        lanes: int,
        *,
        adopt: bool = False,
        dies_before_anchor: int | None = None,
        before_anchor: Callable[[int], None] = lambda number: None,
    ) -> None:
        """A driver starts; raises the refusal if there is one, and then nothing has changed."""
        checkpoint, sink = self.checkpoint, self.sink_of(lanes)
        verdict = reconcile(checkpoint.end(), self.ledger, sink, checkpoint.adopted, adopt_ledger=adopt)
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
        to_write = self.to_write(self.in_doubt)
        mine = self.slice_of(lane)
        decision = decide(self.ledger[lane], lane, to_write)
        if decision.action is Action.PRODUCE:
            self.sink.update(mine)
            self._append(lane, to_write, BATCH, len(mine))
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
            decision = decide(self.ledger[attempt.lane], attempt.lane, attempt.to_write)
        except Refused:
            return
        if decision.action is Action.PRODUCE:
            self.sink.update(attempt.records)
            self._append(attempt.lane, attempt.to_write, BATCH, len(attempt.records))

    def _append(self, lane: int, to_write: BatchToWrite, kind: str, records: int = 0) -> None:
        first, end = ({"source": {"0": offset}} for offset in self.checkpoint.ranges[to_write.batch])
        self.ledger[lane] = LedgerRecord(
            sink_id="s",
            query_id=to_write.query_id,
            run_id="",
            lane=lane,
            lanes=to_write.sink.lanes,
            batch=to_write.batch,
            digest=to_write.digest,
            start=first,
            end=end,
            records=records,
            checksum=0,
            topic="sink",
            topic_id=to_write.sink.topic_id,
            application="",
            time="",
            kind=kind,
        )

    def commit(self) -> None:
        self.checkpoint.committed = self.checkpoint.newest
        self.done.clear()

    def die(self, *, leaves_attempts: bool = False) -> None:
        if leaves_attempts and self.lanes and self.in_doubt is not None:
            to_write = self.to_write(self.in_doubt)
            self.attempts += (Attempt(lane, to_write, self.slice_of(lane)) for lane in range(self.lanes))
        self.lanes = 0
        self.done.clear()
