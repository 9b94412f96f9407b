"""A consistent cut through a stream that may be running: a last batch, and the sink's offsets that bound it.

Each ledger record says where the sink ended when its batch began, so the start of batch N+1 bounds batch N exactly. Only
the newest batch has no such bound: it is taken if the sink stands still around it, and otherwise left to the next time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_ckpt.kafka.offsets import Ends
from airflow_ckpt.verify.ledger_check import Batch
from ckpt_stream.sink_facts import Boundaries

#: The markers of a committed transaction reach all its partitions within milliseconds; a running stream never stands still.
SETTLE_SECONDS = 3.0


@dataclass(frozen=True)
class Cut:
    """The batches to verify, and what bounds them in the sink."""

    batches: Sequence[Batch]
    start: Mapping[int, int]
    end: Mapping[int, int]
    boundaries: Boundaries
    #: The newest batch was left out because it is in flight.
    left_out: int | None = None

    def after_retention(self, earliest: Mapping[int, int]) -> Cut:
        """The batches of which retention has deleted nothing: those that begin where the topic does, or later."""
        begins = self.boundaries.offsets
        whole = [i for i in range(len(self.batches)) if all(o[i] >= earliest.get(p, 0) for p, o in begins.items())]
        first = whole[0] if whole else len(self.batches)
        rest = Boundaries(self.boundaries.numbers[first:], {p: offsets[first:] for p, offsets in begins.items()})
        start = {p: rest.offsets[p][0] if rest.offsets.get(p) else stop for p, stop in self.end.items()}
        return replace(self, batches=self.batches[first:], start=start, boundaries=rest)


def take_cut(
    read_batches: Callable[[], list[Batch]],
    read_ends: Callable[[], Ends],
    topic: str,
    *,
    after: int | None = None,
    until: int | None = None,
    settle_seconds: float = SETTLE_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Cut, list[Batch], Ends]:
    """The cut, the ledger's batches and the sink's ends at that moment. ``after``: the last batch already verified."""
    deadline = time.monotonic() + settle_seconds
    while True:
        batches = read_batches()
        ends = read_ends()
        again = read_batches()
        still = [b.number for b in batches] == [b.number for b in again] and not ends.held_back
        whole = not batches or not batches[-1].missing
        if still and whole:
            return _cut(batches, ends.stable, topic, after, until), batches, ends
        if time.monotonic() > deadline:
            return _bounded(batches, ends, topic, after, until), batches, ends
        sleep(0.05)


def _cut(batches: Sequence[Batch], end: Mapping[int, int], topic: str, after: int | None, until: int | None) -> Cut:
    """Everything up to the newest batch, or to the one asked for."""
    chosen = [b for b in batches if (after is None or b.number > after) and (until is None or b.number <= until)]
    following = next((b for b in batches if chosen and b.number > chosen[-1].number), None)
    starts = {b.number: b.sink_start(topic) for b in chosen}
    stop = {**end, **following.sink_start(topic)} if following else dict(end)
    partitions = sorted(end)
    start = {p: min((s[p] for s in starts.values() if p in s), default=stop.get(p, 0)) for p in partitions}
    offsets = {p: [starts[b.number].get(p, start[p]) for b in chosen] for p in partitions}
    return Cut(chosen, start, stop, Boundaries([b.number for b in chosen], offsets))


def _bounded(batches: Sequence[Batch], ends: Ends, topic: str, after: int | None, until: int | None) -> Cut:
    """The sink does not stand still: leave out the newest batch, whose end nobody can tell yet."""
    newest = batches[-1].number if batches else None
    last = newest - 1 if newest is not None else None
    if until is not None and last is not None:
        last = min(last, until)
    cut = _cut(batches, ends.stable, topic, after, last)
    end = {p: min(stop, ends.stable.get(p, stop)) for p, stop in cut.end.items()}
    return Cut(cut.batches, cut.start, end, cut.boundaries, left_out=newest)


def cut_beside(batches: Sequence[Batch], ledger: Sequence[Batch], ends: Ends, topic: str) -> Cut:
    """The same batches in another topic that their transactions write to; ``ledger`` was read after its ends."""
    last = batches[-1].number
    following = next((b for b in ledger if b.number > last), None)
    known = [*batches, following] if following else list(batches)
    cut = _cut(known, ends.stable, topic, None, last)
    return Cut(
        cut.batches, cut.start, {p: min(stop, ends.stable.get(p, stop)) for p, stop in cut.end.items()}, cut.boundaries
    )
