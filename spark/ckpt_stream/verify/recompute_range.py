"""Determines the batches that a recomputation compares, and their range in the sink; the stream may be running."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ckpt_stream.errors import CannotTell
from ckpt_stream.kafka.admin_client import admin_client
from ckpt_stream.kafka.ask_topic_ends import topic_ends
from ckpt_stream.kafka.ledger_lanes import LedgerLanes
from ckpt_stream.kafka.topic_settings import cleanup_policy, topic_settings
from ckpt_stream.protocol.checkpoint.batch_offsets import end_offsets, pinned_offsets
from ckpt_stream.protocol.checkpoint.intact_checkpoint import IntactCheckpoint, read_intact_checkpoint
from ckpt_stream.protocol.deadline import Deadline
from ckpt_stream.protocol.ledger.ledger_record import ledger_topic, sink_starts
from ckpt_stream.protocol.run_files.record_files import ADOPTION
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.protocol.settings.stream_settings import AT_LEAST_ONCE
from ckpt_stream.protocol.storage import ReadableFiles
from ckpt_stream.protocol.topic_ends import TopicEnds
from ckpt_stream.protocol.verification.consistent_cut import known_end
from ckpt_stream.protocol.verification.removed_records import removed_by_compaction, removed_by_retention

#: How long to wait for a moment in which a running stream has no batch in flight.
WATCH_SECONDS = 5.0


@dataclass(frozen=True)
class Bounds:
    """The last batch, and the offsets of the sink between which the records of all batches lie."""

    last: int
    start: Mapping[int, int]
    end: Mapping[int, int]


@dataclass(frozen=True)
class SinkRange:
    """What one look shows of the last batch to compare, and of its end in the sink."""

    last: int
    ends: TopicEnds
    #: By batch, where the sink ended when it began, as far as the ledger knows.
    starts: Mapping[int, Mapping[int, int]]
    #: The last batch is the newest, and nothing was committed during the look.
    nothing_in_flight: bool

    @property
    def end(self) -> Mapping[int, int] | None:
        """Where the last batch ends; None while that is unknown."""
        if self.last < 0:
            return None
        start = self.starts.get(self.last + 1)
        # A partition that the next batch does not know was added later: it has no record of the batches before.
        next_start = None if start is None else {p: start.get(p, 0) for p in self.ends.stable}
        return known_end(self.ends, next_start, nothing_in_flight=self.nothing_in_flight)

    def without_newest(self) -> SinkRange:
        """A running stream never stands still. Its newest batch in the ledger may be left out, and no other: a hanging
        transaction hides what was committed, and what lies before it would look clean."""
        newest = max(self.starts, default=-1)
        # A ledger that ends before the checkpoint has lost batches: no reason to compare fewer.
        return replace(self, last=newest - 1, nothing_in_flight=False) if newest == self.last else self


class RangeReader:
    """Reads the range of a recomputation. Only the range in the sink comes from the ledger, no counts."""

    def __init__(self, files: ReadableFiles, config: StreamConfig, kafka: Mapping[str, Any]) -> None:
        self.files, self.config = files, config
        self.admin = admin_client(kafka)
        self._lanes = LedgerLanes(kafka, ledger_topic(config.sink_id))

    def checkpoint(self) -> IntactCheckpoint:
        return read_intact_checkpoint(self.files)

    def sink_ends(self) -> TopicEnds:
        ends = topic_ends(self.admin, self.config.sink)
        if ends is None:
            raise CannotTell("no_topic", f"The sink topic {self.config.sink} does not exist.", "check the name")
        return ends

    def sink_starts(self, query_id: str | None) -> tuple[dict[int, dict[int, int]], bool]:
        """Where the sink ended when each of the query's batches began, and whether no transaction is open in the ledger."""
        ends = topic_ends(self.admin, self._lanes.topic)
        if ends is None:
            return {}, True
        mine = [r for lane in self._lanes.read(sorted(ends.stable)) for r in lane if r.query_id == query_id]
        return sink_starts(mine, self.config.sink), not ends.held_back

    def sink_policy(self) -> str:
        return cleanup_policy(topic_settings(self.admin, self.config.sink))


def find_bounds(
    files: ReadableFiles, config: StreamConfig, kafka: Mapping[str, Any], until: int | None = None
) -> Bounds:
    """The bounds at a moment without a batch in flight; otherwise the bounds up to a batch whose successor has begun.

    Batches that are missing in the ledger must not make the range shorter: a loss would not be found.
    """
    reader = RangeReader(files, config, kafka)
    deadline = Deadline.after(WATCH_SECONDS)
    seen = deadline.look_until(lambda: _look(reader, until), lambda seen: seen.end is not None)
    if seen.end is None and until is None:
        seen = seen.without_newest()
    if seen.end is None:
        raise CannotTell(
            "in_flight",
            f"Where the last batch ends in {config.sink} was unknown for {WATCH_SECONDS:.0f} s: the stream writes without a "
            "pause, or a transaction is open.",
            "recompute when the stream is stopped, or an open transaction has ended",
        )
    return Bounds(seen.last, _start(reader, seen.starts, seen.ends), seen.end)


def _look(reader: RangeReader, until: int | None) -> SinkRange:
    """The checkpoint, then the sink's ends and the ledger, then the checkpoint again."""
    checkpoint = reader.checkpoint()
    if checkpoint.committed is None:
        raise CannotTell("no_batches", "The checkpoint has no committed batch yet.", "let the stream run first")
    if until is not None and until > checkpoint.committed:
        raise CannotTell(
            "not_there_yet",
            f"Batch {until} is not committed yet; the newest committed batch is {checkpoint.committed}.",
            "recompute again when the stream has committed it",
        )
    ends = reader.sink_ends()
    starts, ledger_at_rest = reader.sink_starts(checkpoint.query_id)
    last = checkpoint.committed if until is None else until
    # What an at-least-once stream writes of its next batch is in the sink at once.
    writes = reader.config.guarantee == AT_LEAST_ONCE and checkpoint.in_doubt is not None
    is_newest = last == checkpoint.committed and ledger_at_rest and not writes
    return SinkRange(last, ends, starts, is_newest and reader.checkpoint() == checkpoint)


def _start(reader: RangeReader, starts: Mapping[int, Mapping[int, int]], ends: TopicEnds) -> dict[int, int]:
    """Where the sink ended when the stream's first batch began; if unknown, the beginning of the sink."""
    sink, first = reader.config.sink, starts.get(0)
    if first is None and reader.files.exists(ADOPTION):
        raise CannotTell(
            "adopted",
            f"{sink} also holds records of an earlier checkpoint, and the ledger no longer has the batch at which they end.",
            "verify at depth `sink`",
        )
    start = {p: (first or {}).get(p, 0) for p in ends.stable}
    _refuse_gone(sink, "sink", ends, reader.sink_policy(), start)
    return start


def refuse_deleted(kafka: Mapping[str, Any], ranges: Mapping[str, Mapping[int, tuple[int, int]]]) -> None:
    """Raise CannotTell if the source no longer holds every record of the range."""
    admin = admin_client(kafka)
    for topic, partitions in ranges.items():
        ends = topic_ends(admin, topic)
        if ends is None:
            raise CannotTell("no_topic", f"The source topic {topic} does not exist any more.", "verify at depth `sink`")
        policy = cleanup_policy(topic_settings(admin, topic))
        _refuse_gone(topic, "source", ends, policy, {p: start for p, (start, end) in partitions.items() if start < end})


def _refuse_gone(topic: str, role: str, ends: TopicEnds, policy: str, start: Mapping[int, int]) -> None:
    if gone := removed_by_retention(start, ends.earliest):
        raise CannotTell(
            f"{role}_truncated",
            gone.in_words(topic),
            f"recompute before the {role}'s retention ends, or verify at depth `sink`",
        )
    if what := removed_by_compaction(topic, policy):
        raise CannotTell(f"{role}_compacted", what, "verify at depth `ledger`")


def source_ranges(files: ReadableFiles, last: int) -> dict[str, dict[int, tuple[int, int]]]:
    """``{topic: {partition: (start, end)}}`` from the first batch to this one; a partition added later begins at 0."""
    starts, ends = pinned_offsets(files), end_offsets(files, last)
    if starts is None or ends is None:
        raise CannotTell(
            "checkpoint_history",
            f"The checkpoint no longer has {'sources/0/0' if starts is None else f'offsets/{last}'}: the source range is "
            "not known.",
            "recompute up to a batch that is still in the checkpoint's log",
        )
    return {
        topic: {int(p): (int(starts.get(topic, {}).get(p, 0)), int(end)) for p, end in partitions.items()}
        for topic, partitions in ends.items()
    }
