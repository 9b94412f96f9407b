"""The source offsets at which a batch begins and ends, from Spark's offset log. An empty file is damaged, not missing."""

from __future__ import annotations

from collections.abc import Callable

from ckpt_stream.protocol.checkpoint.checkpoint_log import parse_initial_offsets, parse_offsets
from ckpt_stream.protocol.offsets import Offsets
from ckpt_stream.protocol.storage import ReadableFiles


def pinned_offsets(files: ReadableFiles, source: int = 0) -> Offsets | None:
    """Where the stream's first batch begins: a Kafka source writes this down before that batch. None if it has not yet."""
    text = files.read(f"sources/{source}/0")
    return parse_initial_offsets(text, f"sources/{source}/0") if text is not None else None


def end_offsets(files: ReadableFiles, batch: int) -> Offsets | None:
    """Where a batch ends; None if the offset log does not hold it."""
    text = files.read(f"offsets/{batch}")
    return parse_offsets(text, f"offsets/{batch}").kafka if text is not None else None


def start_offsets(files: ReadableFiles, batch: int) -> Offsets:
    """Where a batch begins; empty if unknown."""
    return start_of(batch, lambda: pinned_offsets(files), lambda before: end_offsets(files, before))


def start_of(batch: int, first: Callable[[], Offsets | None], end: Callable[[int], Offsets | None]) -> Offsets:
    """Where a batch begins: the end of the batch before it or, for batch 0, the start of the source; empty if unknown."""
    return (first() if batch == 0 else end(batch - 1)) or {}
