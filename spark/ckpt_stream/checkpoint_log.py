"""The text of Spark's two checkpoint logs, as values: ``offsets/N`` (write-ahead) and ``commits/N`` (done)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ckpt_stream.errors import StreamError

#: Both logs are known in these versions; a higher one is refused by name.
KNOWN_VERSIONS = ("v1", "v2")
#: What stands for a source without an offset.
VOID = "-"
_VERSION = re.compile(r"v\d+")
RESTORE = "Restore the checkpoint from a copy made between batches."


class CheckpointLogError(StreamError):
    """A file of the checkpoint cannot be read as what it should be."""

    restart_may_help = False


@dataclass(frozen=True)
class OffsetLog:
    """One entry of the offset log: the end offsets of every source, and what was pinned for the batch."""

    version: str
    watermark_ms: int
    timestamp_ms: int
    conf: Mapping[str, str]
    sources: tuple[Any, ...]

    @property
    def kafka(self) -> dict[str, dict[str, int]]:
        """End offsets of all Kafka sources together: ``{topic: {partition: offset}}``."""
        ends: dict[str, dict[str, int]] = {}
        for source in self.sources:
            if isinstance(source, dict):
                for topic, partitions in source.items():
                    if isinstance(partitions, dict):
                        ends.setdefault(topic, {}).update(partitions)
        return ends


@dataclass(frozen=True)
class CommitLog:
    """One entry of the commit log."""

    version: str
    next_watermark_ms: int
    state_unique_ids: Mapping[str, Any] | None = None


def _version_and_lines(text: str, what: str, known: tuple[str, ...] = KNOWN_VERSIONS) -> tuple[str, list[str]]:
    lines = text.splitlines()
    if not lines or not lines[0].strip():
        raise CheckpointLogError(f"{what} is empty: it was torn. {RESTORE}")
    version = lines[0].strip()
    if not _VERSION.fullmatch(version):
        raise CheckpointLogError(f"{what} begins with {version[:40]!r} instead of a version: it is foreign. {RESTORE}")
    if version not in known:
        raise CheckpointLogError(
            f"{what} has version {version[:40]!r}; known versions are {', '.join(known)}. A newer Spark wrote it: install a "
            "newer airflow-ckpt."
        )
    return version, lines[1:]


def _json(line: str, what: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as e:
        raise CheckpointLogError(f"{what} is torn or foreign: {line[:80]!r} is not JSON. {RESTORE}") from e


def _whole(value: Any, what: str) -> int:
    """A number as Spark writes it; what only looks like one (true, "5", 1e999) is foreign."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise CheckpointLogError(f"{what} is foreign: {str(value)[:80]!r} stands where a number should. {RESTORE}")
    return value


def _check_offsets(source: Any, what: str) -> Any:
    """Spark's other sources may log what they like; what has the form of Kafka's offsets must hold numbers."""
    if isinstance(source, dict):
        for partitions in source.values():
            if isinstance(partitions, dict):
                for offset in partitions.values():
                    _whole(offset, what)
    return source


def parse_offsets(text: str, what: str = "offset log") -> OffsetLog:
    """Parse ``offsets/N``. Version 2 names each source (``id:json``); a void source is ``-``."""
    version, lines = _version_and_lines(text, what)
    if not lines:
        raise CheckpointLogError(f"{what} ends after its version line: it was torn. {RESTORE}")
    meta = _json(lines[0], what)
    if not isinstance(meta, dict) or "batchTimestampMs" not in meta or not isinstance(meta.get("conf", {}), dict):
        raise CheckpointLogError(f"{what} has no batch metadata: it is foreign. {RESTORE}")
    if len(lines) == 1:
        raise CheckpointLogError(f"{what} names no source: it was torn. {RESTORE}")
    return OffsetLog(
        version,
        _whole(meta.get("batchWatermarkMs", 0), what),
        _whole(meta["batchTimestampMs"], what),
        meta.get("conf", {}),
        tuple(_source(line, version, what) for line in lines[1:]),
    )


def _source(line: str, version: str, what: str) -> Any:
    if version == "v2":
        name, colon, line = line.partition(":")
        if not colon or "{" in name:
            raise CheckpointLogError(f"{what} is torn or foreign: {name[:80]!r} names no source. {RESTORE}")
    return None if line.strip() == VOID else _check_offsets(_json(line, what), what)


def with_offsets(text: str, offsets: Mapping[str, Mapping[str, int]], watermark_ms: int, timestamp_ms: int) -> str:
    """An entry of the offset log made from another one of the same query: the Kafka source ends at other offsets."""
    before = parse_offsets(text)
    lines = text.splitlines()
    meta = {**json.loads(lines[1]), "batchWatermarkMs": watermark_ms, "batchTimestampMs": timestamp_ms}
    sources = []
    for line, source in zip(lines[2:], before.sources, strict=True):
        name = line.partition("{")[0] if before.version == "v2" else ""
        sources.append(f"{name}{json.dumps(offsets)}" if isinstance(source, dict) else line)
    return "\n".join([before.version, json.dumps(meta), *sources])


def parse_commit(text: str, what: str = "commit log") -> CommitLog:
    """Parse ``commits/N``; version 2 adds the state stores' unique ids."""
    version, lines = _version_and_lines(text, what)
    if not lines:
        raise CheckpointLogError(f"{what} ends after its version line: it was torn. {RESTORE}")
    meta = _json(lines[0], what)
    if not isinstance(meta, dict) or not isinstance(meta.get("stateUniqueIds") or {}, dict):
        raise CheckpointLogError(f"{what} has no metadata: it is foreign. {RESTORE}")
    return CommitLog(version, _whole(meta.get("nextBatchWatermarkMs", 0), what), meta.get("stateUniqueIds"))


def parse_metadata(text: str, what: str = "metadata") -> str:
    """Parse ``metadata``: the query's id."""
    document = _json(text.strip(), what)
    if not isinstance(document, dict) or not isinstance(document.get("id"), str) or not document["id"]:
        raise CheckpointLogError(f"{what} holds no query id: it is foreign. {RESTORE}")
    return str(document["id"])


def parse_initial_offsets(text: str, what: str = "sources/0/0") -> dict[str, dict[str, int]]:
    """Parse the start offsets that the Kafka source pinned before its first batch (a zero byte, a version, JSON)."""
    _, lines = _version_and_lines(text.removeprefix("\0"), what, known=("v1",))
    document = _check_offsets(_json(lines[0] if lines else "", what), what)
    if not isinstance(document, dict) or not all(isinstance(partitions, dict) for partitions in document.values()):
        raise CheckpointLogError(f"{what} holds no offsets: it is foreign. {RESTORE}")
    return document


def initial_offsets(offsets: Mapping[str, Mapping[str, int]]) -> str:
    """The text of ``sources/0/0`` with these start offsets."""
    return f"\0v1\n{json.dumps(offsets)}"
