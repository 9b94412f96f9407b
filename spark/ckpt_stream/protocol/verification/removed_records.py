"""Whether a topic still holds every record of a range. A range with removed records counts as unknown, never as correct. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Removed:
    """A partition that no longer holds the first records of a range."""

    partition: int
    #: Where the range begins, and where the partition begins now.
    wanted: int
    first: int

    def in_words(self, topic: str) -> str:
        return (
            f"{topic}-{self.partition} begins at offset {self.first}, the range at {self.wanted}: retention has deleted "
            "records of it."
        )


def removed_by_retention(start: Mapping[int, int], earliest: Mapping[int, int]) -> Removed | None:
    """The first partition that no longer has the first records of its range; ``earliest`` is where each partition begins.

    This includes a partition that is empty because everything in it was deleted.
    """
    for partition, wanted in start.items():
        if (first := earliest.get(partition, 0)) > wanted:
            return Removed(partition, wanted, first)
    return None


def removed_by_compaction(topic: str, cleanup_policy: str) -> str | None:
    """A text for a topic that is compacted; None if the policy does not compact."""
    if "compact" not in cleanup_policy:
        return None
    return f"{topic} has cleanup.policy={cleanup_policy}: compaction removes records."
