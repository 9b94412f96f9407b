"""A consistent cut through a stream that may be running: a last batch, and the sink's offsets that bound it.

Each ledger record has the end of the sink when its batch began, so the start of batch N+1 is exactly the end of batch N. Only
the newest batch has no such end: it is included if nothing is written to the sink meanwhile, and otherwise left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ckpt_stream.protocol.deadline import Deadline
from ckpt_stream.protocol.ledger.ledger_batches import Batch
from ckpt_stream.protocol.topic_ends import TopicEnds
from ckpt_stream.protocol.verification.scan_result import Boundaries

#: How long to wait for a moment without writes. The markers of a committed transaction reach all its partitions within
#: milliseconds, but in a running stream there may be no such moment.
STAND_STILL_SECONDS = 3.0
PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class BatchRange:
    """The batches to verify, first and last included. None: from the start, to the newest."""

    after: int | None = None
    until: int | None = None
    #: The query to which the number `after` belongs; None: the newest query in the ledger, as for `until`.
    query: str | None = None

    def slice_of(self, batches: Sequence[Batch]) -> tuple[int, int]:
        """The indexes at which the range begins and ends. A query that is not in the ledger counts as older than all of it."""
        order = list(dict.fromkeys(b.query for b in batches))
        if not order:
            return 0, 0
        begin, end = 0, len(batches)
        query = self.query or order[-1]
        if self.after is not None and query in order:
            last = (order.index(query), self.after)
            begin = next((i for i, b in enumerate(batches) if (order.index(b.query), b.number) > last), end)
        if self.until is not None:
            behind = (i for i, b in enumerate(batches) if b.query == order[-1] and b.number > (self.until or 0))
            end = next(behind, end)
        return begin, end


ALL_BATCHES = BatchRange()


@dataclass(frozen=True)
class Snapshot:
    """The batches in the ledger, and the sink's ends that were read after them; the stream may be running."""

    batches: Sequence[Batch]
    ends: TopicEnds
    #: Nothing was committed while both were read.
    at_rest: bool
    wanted: BatchRange = ALL_BATCHES

    @property
    def stands_still(self) -> bool:
        """Whether the sink ends with the newest batch."""
        newest_is_whole = not self.batches or not self.batches[-1].missing
        return self.at_rest and newest_is_whole and not self.ends.held_back


@dataclass(frozen=True)
class ConsistentCut:
    """The batches to verify, and the offsets between which their records lie in the sink."""

    batches: Sequence[Batch]
    start: Mapping[int, int]
    end: Mapping[int, int]
    boundaries: Boundaries
    #: The batch whose start is the end of the cut; None: the cut ends at the end of the sink.
    next_batch: Batch | None = None
    #: The number of the newest batch, if it was left out because it is in flight.
    left_out: int | None = None

    def after_retention(self, earliest: Mapping[int, int]) -> ConsistentCut:
        """The cut without batches that retention has deleted in part: only batches that begin at or after the topic's start."""
        begins = self.boundaries.offsets
        whole = [i for i in range(len(self.batches)) if all(o[i] >= earliest.get(p, 0) for p, o in begins.items())]
        first = whole[0] if whole else len(self.batches)
        rest = Boundaries({p: offsets[first:] for p, offsets in begins.items()}, self.boundaries.formats[first:])
        start = {p: rest.offsets[p][0] if rest.offsets.get(p) else stop for p, stop in self.end.items()}
        return replace(self, batches=self.batches[first:], start=start, boundaries=rest)


def take_consistent_cut(
    look: Callable[[], Snapshot],
    topic: str,
    *,
    settle_seconds: float = STAND_STILL_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[ConsistentCut, Snapshot]:
    """The cut, and the snapshot from which it was made."""
    deadline = Deadline.after(settle_seconds)
    while True:
        is_last = deadline.passed
        snapshot = look()
        first, last = snapshot.wanted.slice_of(snapshot.batches)
        cut = _cut(snapshot.batches, snapshot.ends.stable, topic, first, last)
        if snapshot.stands_still or (cut.next_batch is not None and snapshot.ends.show(cut.end)):
            return cut, snapshot
        if is_last:
            return _without_newest(snapshot, topic), snapshot
        sleep(PAUSE_SECONDS)


def _cut(batches: Sequence[Batch], end: Mapping[int, int], topic: str, first: int, last: int) -> ConsistentCut:
    """The batches of a range, from the last gap in the ledger on."""
    following = batches[last] if last < len(batches) else None
    if following is not None and following.cut_off:
        first = last  # the end of the previous batch is unknown
    first = max((i for i in range(first, last) if batches[i].cut_off), default=first)
    chosen = batches[first:last]
    starts = [b.sink_start(topic) for b in chosen]
    stop = {**end, **following.sink_start(topic)} if following else dict(end)
    begins = {p: _begins([s.get(p) for s in starts], stop.get(p, 0)) for p in sorted(end)}
    start = {p: offsets[0] if offsets else stop.get(p, 0) for p, offsets in begins.items()}
    return ConsistentCut(chosen, start, stop, Boundaries(begins, [b.format for b in chosen]), following)


def _begins(known: Sequence[int | None], stop: int) -> list[int]:
    """Where each batch begins in a partition; a batch that does not name the partition has no records in it."""
    offsets = []
    for offset in reversed(known):
        stop = stop if offset is None else offset
        offsets.append(stop)
    return offsets[::-1]


def _without_newest(snapshot: Snapshot, topic: str) -> ConsistentCut:
    """The cut of a sink that is being written to: without the newest batch, whose end is not known yet, and without batches
    before it that readers do not see completely yet."""
    batches, ends = snapshot.batches, snapshot.ends
    first, last = snapshot.wanted.slice_of(batches)
    last = min(last, max(0, len(batches) - 1))
    first = min(first, last)
    while True:
        cut = _cut(batches, ends.stable, topic, first, last)
        if last == first or ends.show(cut.end):
            break
        last -= 1
    end = {p: min(stop, ends.stable.get(p, stop)) for p, stop in cut.end.items()}
    return replace(cut, end=end, left_out=batches[-1].number if batches else None)


def cut_beside(batches: Sequence[Batch], ledger: Sequence[Batch], ends: TopicEnds, topic: str) -> ConsistentCut:
    """The same batches in another topic of their transactions; ``ledger`` was read after the ends of that topic."""
    place = next((i for i, b in enumerate(ledger) if b.id == batches[-1].id), len(ledger))
    cut = _cut([*batches, *ledger[place + 1 :]], ends.stable, topic, 0, len(batches))
    return replace(cut, end={p: min(stop, ends.stable.get(p, stop)) for p, stop in cut.end.items()})
