"""Parses the entries of Spark's two checkpoint logs: ``offsets/N`` (a batch is planned) and ``commits/N`` (it is done)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ckpt_stream.errors import CheckpointLogError
from ckpt_stream.protocol.offsets import Offsets

#: The versions of both logs that can be read; an error names any other version.
KNOWN_VERSIONS = ("v1", "v2")
#: Spark writes this for a source without an offset.
VOID = "-"
_VERSION = re.compile(r"v\d+")
RESTORE = "restore the checkpoint from a copy made between batches"

#: Kinds of damage to one file.
EMPTY, TORN, FOREIGN, UNKNOWN_VERSION = "empty", "torn", "foreign", "unknown_version"


@dataclass(frozen=True)
class OffsetLog:
    """One entry of the offset log: the end offsets of every source, and the watermark, time and settings of the batch."""

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


def _damage(kind: str, file: str, found: str, helps: str = RESTORE) -> CheckpointLogError:
    return CheckpointLogError(kind, file, f"{file} {found}", helps)


def _version_and_lines(text: str, file: str, known: tuple[str, ...] = KNOWN_VERSIONS) -> tuple[str, list[str]]:
    _refuse_empty(text, file)
    lines = text.splitlines()
    version = lines[0].strip()
    if not _VERSION.fullmatch(version):
        # A file of Spark that was cut off after its first letter is just "v"; anything else was written by another program.
        kind = TORN if version == "v" else FOREIGN
        raise _damage(kind, file, f"begins with {version[:40]!r} instead of a version: it is {kind}.")
    if version not in known:
        raise _damage(
            UNKNOWN_VERSION,
            file,
            f"has version {version[:40]!r}; known versions are {', '.join(known)}.",
            "a newer Spark wrote it: install a newer airflow-ckpt",
        )
    return version, lines[1:]


def _refuse_empty(text: str, file: str) -> None:
    if not text.strip("\0 \t\r\n"):
        raise _damage(EMPTY, file, "is empty: it was torn.")


def _json(line: str, file: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as e:
        raise _damage(TORN, file, f"is torn or foreign: {line[:80]!r} is not JSON.") from e


def _integer(value: Any, file: str) -> int:
    """A number as Spark writes it; anything else (true, "5", 1e999) is refused."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise _damage(FOREIGN, file, f"is foreign: it has {str(value)[:80]!r} in place of a number.")
    return value


def _checked_offsets(source: Any, file: str) -> Any:
    """Offsets of a Kafka source must be numbers. The offsets of other sources are not checked."""
    if isinstance(source, dict):
        for partitions in source.values():
            if isinstance(partitions, dict):
                for offset in partitions.values():
                    _integer(offset, file)
    return source


def parse_offsets(text: str, file: str = "offset log") -> OffsetLog:
    """Parse ``offsets/N``. Version 2 names each source (``id:json``); a void source is ``-``."""
    version, lines = _version_and_lines(text, file)
    if not lines:
        raise _damage(TORN, file, "ends after its version line: it was torn.")
    meta = _json(lines[0], file)
    if not isinstance(meta, dict) or "batchTimestampMs" not in meta or not isinstance(meta.get("conf", {}), dict):
        raise _damage(FOREIGN, file, "has no batch metadata: it is foreign.")
    if len(lines) == 1:
        raise _damage(TORN, file, "has no line for a source: it was torn.")
    return OffsetLog(
        version,
        _integer(meta.get("batchWatermarkMs", 0), file),
        _integer(meta["batchTimestampMs"], file),
        meta.get("conf", {}),
        tuple(_source(line, version, file) for line in lines[1:]),
    )


def _source(line: str, version: str, file: str) -> Any:
    if version == "v2":
        name, colon, line = line.partition(":")
        if not colon or "{" in name:
            raise _damage(TORN, file, f"is torn or foreign: {name[:80]!r} names no source.")
    return None if line.strip() == VOID else _checked_offsets(_json(line, file), file)


def with_offsets(text: str, offsets: Offsets, watermark_ms: int, timestamp_ms: int) -> str:
    """Make an entry of the offset log from another entry of the same query, with other end offsets of the Kafka source."""
    before = parse_offsets(text)
    lines = text.splitlines()
    meta = {**json.loads(lines[1]), "batchWatermarkMs": watermark_ms, "batchTimestampMs": timestamp_ms}
    sources = []
    for line, source in zip(lines[2:], before.sources, strict=True):
        name = line.partition("{")[0] if before.version == "v2" else ""
        sources.append(f"{name}{json.dumps(offsets)}" if isinstance(source, dict) else line)
    return "\n".join([before.version, json.dumps(meta), *sources])


def parse_commit(text: str, file: str = "commit log") -> CommitLog:
    """Parse ``commits/N``; version 2 adds the state stores' unique ids."""
    version, lines = _version_and_lines(text, file)
    if not lines:
        raise _damage(TORN, file, "ends after its version line: it was torn.")
    meta = _json(lines[0], file)
    if not isinstance(meta, dict) or not isinstance(meta.get("stateUniqueIds") or {}, dict):
        raise _damage(FOREIGN, file, "has no metadata: it is foreign.")
    return CommitLog(version, _integer(meta.get("nextBatchWatermarkMs", 0), file), meta.get("stateUniqueIds"))


def parse_metadata(text: str, file: str = "metadata") -> str:
    """Parse ``metadata``: the query's id."""
    _refuse_empty(text, file)
    document = _json(text.strip(), file)
    if not isinstance(document, dict) or not isinstance(document.get("id"), str) or not document["id"]:
        raise _damage(FOREIGN, file, "holds no query id: it is foreign.")
    return str(document["id"])


def parse_initial_offsets(text: str, file: str = "sources/0/0") -> dict[str, dict[str, int]]:
    """Parse the start offsets that the Kafka source wrote before its first batch (a zero byte, a version, JSON)."""
    _, lines = _version_and_lines(text.removeprefix("\0"), file, known=("v1",))
    document = _checked_offsets(_json(lines[0] if lines else "", file), file)
    if not isinstance(document, dict) or not all(isinstance(partitions, dict) for partitions in document.values()):
        raise _damage(FOREIGN, file, "holds no offsets: it is foreign.")
    return document


def initial_offsets(offsets: Offsets) -> str:
    """The text of ``sources/0/0`` with these start offsets."""
    return f"\0v1\n{json.dumps(offsets)}"


def input_digest(offset_log: str) -> str:
    """Identify a batch's input by the text of its entry in Spark's offset log, which a replay never rewrites."""
    return hashlib.sha256(offset_log.encode()).hexdigest()[:32]
