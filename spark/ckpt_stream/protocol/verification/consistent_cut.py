"""A consistent cut through a stream that may be running: a last batch, and the sink's offsets that bound it.

Each ledger record has the end of the sink when its batch began, so the start of batch N+1 is exactly the end of batch N. Only
the newest batch has no such end: it is included if nothing is written to the sink meanwhile, and otherwise left out.
A verification takes its batches from the ledger, a recomputation from the checkpoint: `known_end` is the rule of both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ckpt_stream.protocol.deadline import Deadline
from ckpt_stream.protocol.ledger.ledger_batches import Batch
from ckpt_stream.protocol.topic_ends import TopicEnds
from ckpt_stream.protocol.verification.scan_result import Boundaries

#: How long to wait for a moment without writes. The markers of a committed transaction reach all its partitions within
#: milliseconds, but in a running stream there may be no such moment.
STAND_STILL_SECONDS = 3.0


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

    def whole_cut(self, topic: str) -> ConsistentCut | None:
        """The cut with all batches of the range; None while the end of the last one is unknown."""
        cut = _cut(self.batches, self.ends.stable, topic, *self.wanted.slice_of(self.batches))
        newest_is_whole = not self.batches or not self.batches[-1].missing
        next_start = cut.end if cut.next_batch is not None else None
        known = known_end(self.ends, next_start, nothing_in_flight=self.at_rest and newest_is_whole)
        return None if known is None else cut


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


def known_end(
    ends: TopicEnds, next_start: Mapping[int, int] | None, *, nothing_in_flight: bool
) -> Mapping[int, int] | None:
    """Where a batch ends in the sink; None while that is unknown.

    It ends where the next one begins, once readers see everything before that; and where the sink does, if nothing was
    committed since and no transaction is open.
    """
    if next_start is not None and ends.show(next_start):
        return next_start
    return ends.stable if nothing_in_flight and not ends.held_back else None


def take_consistent_cut(
    look: Callable[[], Snapshot], topic: str, *, settle_seconds: float = STAND_STILL_SECONDS
) -> tuple[ConsistentCut, Snapshot]:
    """The cut, and the snapshot from which it was made."""
    deadline = Deadline.after(settle_seconds)
    snapshot = deadline.look_until(look, lambda seen: seen.whole_cut(topic) is not None)
    return snapshot.whole_cut(topic) or _without_newest(snapshot, topic), snapshot


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
