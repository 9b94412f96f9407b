"""How far Spark's two logs go, in a checkpoint whose stream may be running meanwhile."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ckpt_stream.files import ReadableFiles

#: As Spark names a batch; its temporary files, Hadoop's checksums and what others left there have other names.
_BATCH = re.compile(r"0|[1-9][0-9]*")

#: Looks at a stream that throws old batches away faster than the storage lists them.
LOOKS = 5


@dataclass(frozen=True)
class Damage:
    """What the numbers of the batches in both logs show to be missing; a running stream never looks like that."""

    missing: str
    found: str
    risk: str


@dataclass(frozen=True)
class LogEnds:
    """Both logs at one and the same moment."""

    #: Batches that the offset log still holds; Spark throws old ones away.
    kept: frozenset[int]
    #: The newest batch that was begun (``offsets/N``) and the newest one that is done (``commits/N``).
    newest: int | None
    committed: int | None

    @property
    def in_doubt(self) -> int | None:
        """The batch that was begun and is not done; a restart repeats it."""
        return self.newest if self.newest is not None and self.newest > _number(self.committed) else None

    @property
    def commit_without_offsets(self) -> Damage | None:
        committed, newest = self.committed, self.newest
        if committed is None or committed in self.kept:
            return None
        return Damage(
            f"offsets/{committed}",
            f"commits/{committed} is there and offsets/{committed} is not (the newest is "
            f"{'none' if newest is None else newest})",
            "the checkpoint was damaged or half copied, and a restart could read records again or skip some.",
        )

    @property
    def missing_commits(self) -> Damage | None:
        committed, newest = self.committed, self.newest
        if newest is None or newest <= _number(committed) + 1:
            return None
        return Damage(
            f"commits/{newest - 1}",
            f"The newest batch is {newest} and the newest committed one is {'none' if committed is None else committed}",
            "at most one batch can be in doubt, so files of the commit log are missing.",
        )

    @property
    def damage(self) -> Damage | None:
        return self.commit_without_offsets or self.missing_commits


def log_ends(files: ReadableFiles) -> LogEnds:
    """Two listings; a third one if batches ended between them.

    Spark writes ``offsets/N``, then ``commits/N``, then ``offsets/N+1``. So commits are listed first: of a commit that was
    seen, the offsets are there. And where the offsets are more than one batch ahead, the commits that they follow were
    there before them, and a later look at the commits finds them, unless they are missing or already thrown away.
    """
    commits = _numbers(files, "commits")
    for _ in range(LOOKS):
        offsets = _numbers(files, "offsets")
        ends = _ends(offsets, commits)
        if not ends.damage:
            break
        later = _numbers(files, "commits")
        ends = _ends(offsets, commits | {n for n in later if n <= max(offsets, default=-1)})
        if not ends.damage or max(later, default=-1) <= max(offsets, default=-1):
            break
        commits = later
    return ends


def _ends(offsets: set[int], commits: set[int]) -> LogEnds:
    return LogEnds(frozenset(offsets), max(offsets, default=None), max(commits, default=None))


def _number(committed: int | None) -> int:
    return -1 if committed is None else committed


def _numbers(files: ReadableFiles, folder: str) -> set[int]:
    return {int(name) for name in files.names(folder) if _BATCH.fullmatch(name)}
