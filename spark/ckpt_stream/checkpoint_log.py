"""The text of Spark's two checkpoint logs, as values: ``offsets/N`` (write-ahead) and ``commits/N`` (done)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ckpt_stream.errors import StreamError

#: Both logs are known in these versions; a higher one is refused by name.
KNOWN_VERSIONS = ("v1", "v2")


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
                        ends.setdefault(topic, {}).update({str(p): int(o) for p, o in partitions.items()})
        return ends


@dataclass(frozen=True)
class CommitLog:
    """One entry of the commit log."""

    version: str
    next_watermark_ms: int
    state_unique_ids: Mapping[str, Any] | None = None


def _version_and_lines(text: str, what: str) -> tuple[str, list[str]]:
    lines = text.splitlines()
    if not lines or not lines[0].strip():
        raise CheckpointLogError(f"{what} is empty")
    version = lines[0].strip()
    if version not in KNOWN_VERSIONS:
        known = ", ".join(KNOWN_VERSIONS)
        raise CheckpointLogError(f"{what} has version {version[:40]!r}; known versions are {known}")
    return version, lines[1:]


def _json(line: str, what: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as e:
        raise CheckpointLogError(f"{what} is torn or foreign: {line[:80]!r} is not JSON") from e


def parse_offsets(text: str, what: str = "offset log") -> OffsetLog:
    """Parse ``offsets/N``. Version 2 names each source (``id:json``); a void source is ``-``."""
    version, lines = _version_and_lines(text, what)
    if not lines:
        raise CheckpointLogError(f"{what} ends after its version line")
    meta = _json(lines[0], what)
    if not isinstance(meta, dict) or "batchTimestampMs" not in meta:
        raise CheckpointLogError(f"{what} has no batch metadata")
    sources: list[Any] = []
    for line in lines[1:]:
        if line.strip() == "-":
            sources.append(None)
        elif version == "v2" and not line.lstrip().startswith("{"):
            sources.append(_json(line.partition(":")[2], what))
        else:
            sources.append(_json(line, what))
    if not sources:
        raise CheckpointLogError(f"{what} names no source")
    return OffsetLog(
        version,
        int(meta.get("batchWatermarkMs", 0)),
        int(meta["batchTimestampMs"]),
        meta.get("conf", {}),
        tuple(sources),
    )


def parse_commit(text: str, what: str = "commit log") -> CommitLog:
    """Parse ``commits/N``; version 2 adds the state stores' unique ids."""
    version, lines = _version_and_lines(text, what)
    if not lines:
        raise CheckpointLogError(f"{what} ends after its version line")
    meta = _json(lines[0], what)
    if not isinstance(meta, dict):
        raise CheckpointLogError(f"{what} has no metadata")
    return CommitLog(version, int(meta.get("nextBatchWatermarkMs", 0)), meta.get("stateUniqueIds"))


def parse_metadata(text: str, what: str = "metadata") -> str:
    """Parse ``metadata``: the query's id."""
    document = _json(text.strip() or "-", what)
    if not isinstance(document, dict) or "id" not in document:
        raise CheckpointLogError(f"{what} holds no query id")
    return str(document["id"])


def parse_initial_offsets(text: str, what: str = "sources/0/0") -> dict[str, dict[str, int]]:
    """Parse the start offsets that the Kafka source pinned before its first batch."""
    line = text.splitlines()[-1] if text.strip() else ""
    document = _json(line, what)
    if not isinstance(document, dict):
        raise CheckpointLogError(f"{what} holds no offsets")
    return {t: {str(p): int(o) for p, o in ps.items()} for t, ps in document.items()}
