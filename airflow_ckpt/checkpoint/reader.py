"""Where a checkpoint stands, out of Spark's own files: two listings and the newest entries, however long the stream ran."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from ckpt_stream.checkpoint_log import (
    KNOWN_VERSIONS,
    CheckpointLogError,
    OffsetLog,
    parse_commit,
    parse_initial_offsets,
    parse_metadata,
    parse_offsets,
)
from ckpt_stream.files import ReadableFiles
from ckpt_stream.log_ends import LOOKS, LogEnds, log_ends

#: ``{topic: {partition: offset}}``
Offsets = Mapping[str, Mapping[str, int]]

NO_CHECKPOINT, MISSING, EMPTY, TORN, FOREIGN = "no_checkpoint", "missing", "empty", "torn", "foreign"
UNKNOWN_VERSION, COMMIT_WITHOUT_OFFSETS, MISSING_COMMITS = (
    "unknown_version",
    "commit_without_offsets",
    "missing_commits",
)

_RESTORE = "restore the checkpoint from a copy made between batches"
_VERSION = re.compile(r"v\d+")

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class CheckpointFinding:
    """One thing about a checkpoint that is not as it should be."""

    #: A short name that stays the same from version to version: `no_checkpoint`, `torn`, `missing_commits`, ...
    kind: str
    #: What was found, in words.
    what: str
    #: What to do about it.
    helps: str = ""
    #: The file below the checkpoint.
    file: str | None = None


@dataclass(frozen=True)
class Checkpoint:
    """Where a checkpoint stands. What is not there, or cannot be read, is None or empty; `findings` says why."""

    query_id: str | None = None
    #: The newest batch that was begun (``offsets/N``) and the newest one that is done (``commits/N``).
    newest: int | None = None
    committed: int | None = None
    #: The batch that was begun and is not done; a restart repeats it.
    in_doubt: int | None = None
    #: Offsets where the newest batch begins. Known if it is in doubt; otherwise only if it was asked for.
    start: Offsets = field(default_factory=dict)
    #: Offsets where the newest batch ends.
    end: Offsets = field(default_factory=dict)
    #: Offsets where the newest committed batch ends: what a restart goes on from.
    committed_offsets: Offsets = field(default_factory=dict)
    watermark_ms: int | None = None
    next_watermark_ms: int | None = None
    batch_timestamp_ms: int | None = None
    offset_log_version: str | None = None
    commit_log_version: str | None = None
    #: Settings of Spark that the newest batch was planned with; a restart keeps them.
    conf: Mapping[str, str] = field(default_factory=dict)
    #: Batches that were committed since the stream began.
    batches: int = 0
    #: Batches that the offset log still holds; Spark throws old ones away.
    kept: int = 0
    findings: tuple[CheckpointFinding, ...] = ()

    @property
    def position(self) -> Offsets:
        """Offsets where a restart goes on to read: behind the last committed batch, else where the first one began."""
        return self.start if self.committed is None else self.committed_offsets

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_checkpoint(files: ReadableFiles, *, with_metadata: bool = True, with_start: bool = False) -> Checkpoint:
    """Read where the checkpoint stands. Damage is reported as findings; only the storage's own errors are raised.

    Costs two listings and two small reads; one more for a batch in doubt, one for the query's id (``with_metadata``) and
    one for the offsets where a committed batch began (``with_start``). Some more if the stream moves on meanwhile.
    """
    for _ in range(LOOKS):
        found = _Reading(files).checkpoint(with_metadata, with_start)
        # A batch that was listed and is gone was lost, or a running stream has moved on and thrown it away.
        if not any(finding.kind == MISSING and finding.file != "metadata" for finding in found.findings):
            break
    return found


class _Reading:
    """One look at a checkpoint, with the findings so far."""

    def __init__(self, files: ReadableFiles) -> None:
        self.files = files
        self.findings: list[CheckpointFinding] = []

    def checkpoint(self, with_metadata: bool, with_start: bool) -> Checkpoint:
        ends = log_ends(self.files)
        offsets, newest, committed, in_doubt = ends.kept, ends.newest, ends.committed, ends.in_doubt
        if newest is None and committed is None:
            return self._without_batches()
        self._check(ends)
        log = None if newest is None else self._entry(f"offsets/{newest}", parse_offsets)
        commit = None if committed is None else self._entry(f"commits/{committed}", parse_commit)
        committed_log = log if committed == newest else self._offsets_of(committed, offsets)
        start: Offsets = {}
        if in_doubt is not None and committed is not None and in_doubt - committed == 1:
            start = committed_log.kafka if committed_log else {}
        elif with_start and newest is not None and log is not None:
            start = self._start_of(newest, log, offsets)
        return Checkpoint(
            query_id=self._query_id() if with_metadata else None,
            newest=newest,
            committed=committed,
            in_doubt=in_doubt,
            start=start,
            end=log.kafka if log else {},
            committed_offsets=committed_log.kafka if committed_log else {},
            watermark_ms=log.watermark_ms if log else None,
            next_watermark_ms=commit.next_watermark_ms if commit else None,
            batch_timestamp_ms=log.timestamp_ms if log else None,
            offset_log_version=log.version if log else None,
            commit_log_version=commit.version if commit else None,
            conf=log.conf if log else {},
            batches=0 if committed is None else committed + 1,
            kept=len(offsets),
            findings=tuple(self.findings),
        )

    def _without_batches(self) -> Checkpoint:
        text = self._text("metadata")
        if text is None and not self.findings:
            self._find(
                NO_CHECKPOINT,
                "There is no checkpoint: neither offsets nor commits nor metadata.",
                "check the path; if it is right, no stream ran there, and a start begins where its `start` setting says",
            )
        query_id = self._parsed("metadata", text, parse_metadata) if text is not None else None
        return Checkpoint(query_id=query_id, findings=tuple(self.findings))

    def _check(self, ends: LogEnds) -> None:
        for kind, damage in (
            (COMMIT_WITHOUT_OFFSETS, ends.commit_without_offsets),
            (MISSING_COMMITS, ends.missing_commits),
        ):
            if damage is not None:
                self._find(kind, f"{damage.found}: {damage.risk}", _RESTORE, damage.missing)

    def _offsets_of(self, batch: int | None, offsets: frozenset[int]) -> OffsetLog | None:
        return self._entry(f"offsets/{batch}", parse_offsets) if batch in offsets else None

    def _start_of(self, newest: int, log: OffsetLog, offsets: frozenset[int]) -> Offsets:
        if newest > 0:
            before = self._offsets_of(newest - 1, offsets)
            return before.kafka if before else {}
        # Before its first batch, each Kafka source pins where it begins.
        start: dict[str, dict[str, int]] = {}
        for number, source in enumerate(log.sources):
            text = self._text(f"sources/{number}/0") if isinstance(source, dict) else None
            if text is not None:
                for topic, partitions in (
                    self._parsed(f"sources/{number}/0", text, parse_initial_offsets) or {}
                ).items():
                    start.setdefault(topic, {}).update(partitions)
        return start

    def _query_id(self) -> str | None:
        return self._entry(
            "metadata", parse_metadata, "The query's id is lost: a restart would be a new query that knows no batch."
        )

    def _entry(self, name: str, parse: Callable[[str, str], Parsed], stake: str = "") -> Parsed | None:
        text = self._text(name)
        if text is None:
            if not any(finding.file == name for finding in self.findings):
                self._find(MISSING, f"{name} is not there. {stake}".rstrip(), _RESTORE, name)
            return None
        return self._parsed(name, text, parse)

    def _text(self, name: str) -> str | None:
        try:
            return self.files.read(name)
        except UnicodeDecodeError:
            self._find(FOREIGN, f"{name} is not a text: it is foreign or damaged.", _RESTORE, name)
            return None

    def _parsed(self, name: str, text: str, parse: Callable[[str, str], Parsed]) -> Parsed | None:
        try:
            return parse(text, name)
        except CheckpointLogError as e:
            # The parsers' last sentence says what helps.
            what, _, helps = str(e).rpartition(". ")
            self._find(_kind(text, str(e)), f"{what}.", helps[:1].lower() + helps[1:].rstrip("."), name)
            return None

    def _find(self, kind: str, what: str, helps: str, file: str | None = None) -> None:
        self.findings.append(CheckpointFinding(kind, what, helps, file))


def _kind(text: str, error: str) -> str:
    if not text.strip("\0 \t\r\n"):
        return EMPTY
    version = text.lstrip("\0").split("\n", 1)[0].strip()
    if _VERSION.fullmatch(version) and version not in KNOWN_VERSIONS:
        return UNKNOWN_VERSION
    # Of a file cut within its first two bytes nothing tells it from a foreign one, except that it begins as ours do.
    return TORN if "torn" in error or version == "v" else FOREIGN
