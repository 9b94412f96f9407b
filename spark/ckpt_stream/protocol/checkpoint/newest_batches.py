"""The newest batches in Spark's two logs, and their entries, in a checkpoint whose stream may be running meanwhile."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ckpt_stream.protocol.storage import ReadableFiles

#: As Spark names a batch; its temporary files, Hadoop's checksums and what others left there have other names.
_BATCH = re.compile(r"0|[1-9][0-9]*")

#: Kinds of damage that the numbers of the batches show.
MISSING, COMMIT_WITHOUT_OFFSETS, MISSING_COMMITS = "missing", "commit_without_offsets", "missing_commits"

#: Looks at a stream that throws old batches away faster than the storage lists them.
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
    """What the numbers of the batches in both logs show to be missing; a running stream never looks like that."""

    kind: str
    #: The first file that is missing.
    file: str
    found: str


@dataclass(frozen=True)
class ListedLogs(NewestBatches):
    """Both logs at one and the same moment."""

    #: Batches that the offset log still holds; Spark throws old ones away.
    kept: frozenset[int] = frozenset()

    @property
    def commit_without_offsets(self) -> Damage | None:
        committed, newest = self.committed, self.newest
        if committed is None or committed in self.kept:
            return None
        return Damage(
            COMMIT_WITHOUT_OFFSETS,
            f"offsets/{committed}",
            f"commits/{committed} is there and offsets/{committed} is not (the newest is "
            f"{'none' if newest is None else newest}): the checkpoint was damaged or half copied, and a restart could read "
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

    Spark writes ``offsets/N``, then ``commits/N``, then ``offsets/N+1``. So commits are listed first: of a commit that was
    seen, the offsets are there. And where the offsets are more than one batch ahead, the commits that they follow were
    there before them, and a later look at the commits finds them, unless they are missing or already thrown away.
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
    """How far both logs go, and their newest entries of that moment."""

    logs: ListedLogs
    #: By file: the text; None for a file that was listed and is not there.
    texts: Mapping[str, str | None]


def newest_entries(files: ReadableFiles, *, with_commit: bool = False, with_start: bool = False) -> NewestEntries:
    """The listings, and the offset log's entries of the newest batch and of the newest committed one.

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
        # What was listed and is gone was lost; or a running stream has gone on since, and has thrown it away.
        if None not in texts.values():
            break
    return NewestEntries(logs, texts)


def _listed(offsets: set[int], commits: set[int]) -> ListedLogs:
    return ListedLogs(max(offsets, default=None), max(commits, default=None), frozenset(offsets))


def _number(committed: int | None) -> int:
    return -1 if committed is None else committed


def _numbers(files: ReadableFiles, folder: str) -> set[int]:
    return {int(name) for name in files.names(folder) if _BATCH.fullmatch(name)}
