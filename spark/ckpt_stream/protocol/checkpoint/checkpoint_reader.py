"""Reads the state of a checkpoint for status and inspection: damage becomes a finding, and the other files are still read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from ckpt_stream.errors import CheckpointLogError
from ckpt_stream.protocol.checkpoint.batch_offsets import pinned_offsets, start_of
from ckpt_stream.protocol.checkpoint.checkpoint_log import (
    FOREIGN,
    RESTORE,
    OffsetLog,
    parse_commit,
    parse_metadata,
    parse_offsets,
)
from ckpt_stream.protocol.checkpoint.newest_batches import MISSING, NewestBatches, NewestEntries, newest_entries
from ckpt_stream.protocol.offsets import Offsets
from ckpt_stream.protocol.storage import NOT_A_TEXT, ReadableFiles, TolerantFiles

NO_CHECKPOINT = "no_checkpoint"

T = TypeVar("T")


@dataclass(frozen=True)
class CheckpointFinding:
    """One problem of a checkpoint."""

    #: A short name that stays the same from version to version: `no_checkpoint`, `torn`, `missing_commits`, ...
    kind: str
    #: What was found, in words.
    what: str
    #: What to do about it.
    helps: str = ""
    #: The file below the checkpoint.
    file: str | None = None


@dataclass(frozen=True)
class CheckpointReport(NewestBatches):
    """The state of a checkpoint. A field that is missing or cannot be read is None or empty; `findings` has the reason."""

    query_id: str | None = None
    #: Offsets where the newest batch begins. Read if it is in doubt; otherwise only with `with_start`.
    start: Offsets = field(default_factory=dict)
    #: Offsets where the newest batch ends.
    end: Offsets = field(default_factory=dict)
    #: Offsets where the newest committed batch ends: a restart continues from these.
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
    #: Batches that the offset log still holds; Spark deletes old ones.
    kept: int = 0
    findings: tuple[CheckpointFinding, ...] = ()

    @property
    def position(self) -> Offsets:
        """Offsets from which a restart reads: the end of the last committed batch or, without one, the start of the first."""
        return self.start if self.committed is None else self.committed_offsets

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "in_doubt": self.in_doubt}


def read_checkpoint(files: ReadableFiles, *, with_metadata: bool = True, with_start: bool = False) -> CheckpointReport:
    """Read the state of a checkpoint. Damage becomes a finding; only errors of the storage itself are raised.

    It takes two listings and two small reads; one more read for a batch in doubt, one for the query's id (``with_metadata``)
    and one for the offsets where a committed batch began (``with_start``); and some more while the stream is running.
    """
    texts = TolerantFiles(files)
    entries = newest_entries(texts, with_commit=True, with_start=with_start)
    return _Reading(texts, entries).checkpoint(with_metadata, with_start)


class _Reading:
    """One read of a checkpoint, with the findings so far."""

    def __init__(self, files: TolerantFiles, entries: NewestEntries) -> None:
        self.files, self.logs, self.texts = files, entries.logs, entries.texts
        self.findings: list[CheckpointFinding] = []

    def checkpoint(self, with_metadata: bool, with_start: bool) -> CheckpointReport:
        newest, committed, in_doubt = self.logs.newest, self.logs.committed, self.logs.in_doubt
        if newest is None and committed is None:
            return self._without_batches()
        for damage in self.logs.damage:
            self._find(damage.kind, damage.found, RESTORE, damage.file)
        log = self._offset_log(newest)
        commit = self._parsed(f"commits/{committed}", parse_commit) if committed is not None else None
        committed_log = log if committed == newest else self._offset_log(committed)
        start: Offsets = {}
        if in_doubt is not None and committed is not None and in_doubt - committed == 1:
            start = committed_log.kafka if committed_log else {}
        elif with_start and newest is not None and log is not None:
            start = start_of(newest, lambda: self._pinned(log), self._end_of)
        return CheckpointReport(
            query_id=self._query_id() if with_metadata else None,
            newest=newest,
            committed=committed,
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
            kept=len(self.logs.kept),
            findings=tuple(self.findings),
        )

    def _without_batches(self) -> CheckpointReport:
        text = self.files.read("metadata")
        if text is None:
            self._find(
                NO_CHECKPOINT,
                "There is no checkpoint: neither offsets nor commits nor metadata.",
                "check the path; if it is right, no stream has run there, and a start begins as its `start` setting says",
            )
        query_id = self._tolerated("metadata", text, parse_metadata) if text is not None else None
        return CheckpointReport(query_id=query_id, findings=tuple(self.findings))

    def _offset_log(self, batch: int | None) -> OffsetLog | None:
        return self._parsed(f"offsets/{batch}", parse_offsets) if batch in self.logs.kept else None

    def _end_of(self, batch: int) -> Offsets | None:
        log = self._offset_log(batch)
        return log.kafka if log else None

    def _pinned(self, log: OffsetLog) -> Offsets:
        """Where the first batch begins: each Kafka source has written this down before it."""
        start: dict[str, dict[str, int]] = {}
        for number, source in enumerate(log.sources):
            if isinstance(source, dict):
                found = self._or_finding(lambda number=number: pinned_offsets(self.files, number))  # type: ignore[misc]
                for topic, partitions in (found or {}).items():
                    start.setdefault(topic, {}).update(partitions)
        return start

    def _query_id(self) -> str | None:
        text = self.files.read("metadata")
        if text is None:
            lost = "metadata does not exist. The query's id is lost: a restart would be a new query without any batch."
            self._find(MISSING, lost, RESTORE, "metadata")
            return None
        return self._tolerated("metadata", text, parse_metadata)

    def _parsed(self, name: str, parse: Callable[[str, str], T]) -> T | None:
        """The parsed entry; None, with a finding, if it cannot be read."""
        text = self.texts[name]
        if text is None:
            self._find(MISSING, f"{name} does not exist.", RESTORE, name)
            return None
        return self._tolerated(name, text, parse)

    def _tolerated(self, name: str, text: str, parse: Callable[[str, str], T]) -> T | None:
        if text == NOT_A_TEXT:
            self._find(FOREIGN, f"{name} is not text: it is damaged, or another program wrote it.", RESTORE, name)
            return None
        return self._or_finding(lambda: parse(text, name))

    def _or_finding(self, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except CheckpointLogError as e:
            self._find(e.kind, e.found, e.helps, e.file)
            return None

    def _find(self, kind: str, what: str, helps: str, file: str | None = None) -> None:
        self.findings.append(CheckpointFinding(kind, what, helps, file))
