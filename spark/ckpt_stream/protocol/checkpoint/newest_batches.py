"""The newest batches of Spark's two logs, and their entries, in a checkpoint whose stream may be running."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ckpt_stream.protocol.storage import ReadableFiles

#: Spark's name for the file of a batch. Temporary files, Hadoop's checksums and files of other programs do not match.
_BATCH = re.compile(r"0|[1-9][0-9]*")

#: Kinds of damage that can be seen from the numbers of the batches.
MISSING, COMMIT_WITHOUT_OFFSETS, MISSING_COMMITS = "missing", "commit_without_offsets", "missing_commits"

#: Attempts to list a stream that deletes old batches faster than the storage lists them.
MAX_LOOKS = 5


@dataclass(frozen=True)
class NewestBatches:
    """How far both logs go."""

    #: The newest batch that was begun (``offsets/N``) and the newest one that is done (``commits/N``).
    newest: int | None = None
    committed: int | None = None

    @property
    def in_doubt(self) -> int | None:
        """The batch that was begun and is not done; a restart repeats it."""
        return self.newest if self.newest is not None and self.newest > _number(self.committed) else None


@dataclass(frozen=True)
class Damage:
    """Files that are missing according to the batch numbers in both logs; this cannot occur in a running stream."""

    kind: str
    #: The first file that is missing.
    file: str
    found: str


@dataclass(frozen=True)
class ListedLogs(NewestBatches):
    """The newest batches of both logs at one moment."""

    #: Batches that the offset log still holds; Spark deletes old ones.
    kept: frozenset[int] = frozenset()

    @property
    def commit_without_offsets(self) -> Damage | None:
        committed, newest = self.committed, self.newest
        if committed is None or committed in self.kept:
            return None
        return Damage(
            COMMIT_WITHOUT_OFFSETS,
            f"offsets/{committed}",
            f"commits/{committed} exists and offsets/{committed} does not (the newest is "
            f"{'none' if newest is None else newest}): the checkpoint is damaged or was half copied, and a restart could read "
            "records again or skip some.",
        )

    @property
    def missing_commits(self) -> Damage | None:
        committed, newest = self.committed, self.newest
        if newest is None or newest <= _number(committed) + 1:
            return None
        return Damage(
            MISSING_COMMITS,
            f"commits/{newest - 1}",
            f"The newest batch is {newest} and the newest committed one is {'none' if committed is None else committed}: at "
            "most one batch can be in doubt, so files of the commit log are missing.",
        )

    @property
    def damage(self) -> tuple[Damage, ...]:
        return tuple(damage for damage in (self.commit_without_offsets, self.missing_commits) if damage is not None)


def list_logs(files: ReadableFiles) -> ListedLogs:
    """Two listings; a third one if batches ended between them.

    Spark writes ``offsets/N``, then ``commits/N``, then ``offsets/N+1``. So commits are listed first: if a commit is listed,
    its offsets exist. If the offsets are then more than one batch ahead, the commits between were written before these offsets,
    and a second listing of the commits has them, unless they are missing or Spark has deleted them already.
    """
    commits = _numbers(files, "commits")
    for _ in range(MAX_LOOKS):
        offsets = _numbers(files, "offsets")
        logs = _listed(offsets, commits)
        if not logs.damage:
            break
        later = _numbers(files, "commits")
        logs = _listed(offsets, commits | {n for n in later if n <= max(offsets, default=-1)})
        if not logs.damage or max(later, default=-1) <= max(offsets, default=-1):
            break
        commits = later
    return logs


@dataclass(frozen=True)
class NewestEntries:
    """The newest batches of both logs, and their entries at that moment."""

    logs: ListedLogs
    #: By file: the text; None for a file that was listed but does not exist.
    texts: Mapping[str, str | None]


def newest_entries(files: ReadableFiles, *, with_commit: bool = False, with_start: bool = False) -> NewestEntries:
    """The listings, and the offset log's entries of the newest batch and of the newest committed batch.

    With ``with_commit`` also the newest entry of the commit log, with ``with_start`` the offset log's entry before the newest.
    """
    for _ in range(MAX_LOOKS):
        logs = list_logs(files)
        batches = [logs.newest, logs.committed]
        if with_start and logs.newest is not None:
            batches.append(logs.newest - 1)
        names = [f"offsets/{batch}" for batch in dict.fromkeys(batches) if batch in logs.kept]
        if with_commit and logs.committed is not None:
            names.append(f"commits/{logs.committed}")
        texts = {name: files.read(name) for name in names}
        # A file that was listed and does not exist is lost; or a running stream has deleted it since the listing.
        if None not in texts.values():
            break
    return NewestEntries(logs, texts)


def _listed(offsets: set[int], commits: set[int]) -> ListedLogs:
    return ListedLogs(max(offsets, default=None), max(commits, default=None), frozenset(offsets))


def _number(committed: int | None) -> int:
    return -1 if committed is None else committed


def _numbers(files: ReadableFiles, folder: str) -> set[int]:
    return {int(name) for name in files.names(folder) if _BATCH.fullmatch(name)}
