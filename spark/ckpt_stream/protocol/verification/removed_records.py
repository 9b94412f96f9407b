"""Whether a topic still holds every record of a range. What it does not hold is unknown, and never right. Pure."""

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
    """The first partition of a range that has lost records, by where the range and the partitions begin.

    A partition in which everything was deleted and nothing new came has lost records as well.
    """
    for partition, wanted in start.items():
        if (first := earliest.get(partition, 0)) > wanted:
            return Removed(partition, wanted, first)
    return None


def removed_by_compaction(topic: str, cleanup_policy: str) -> str | None:
    """What compaction does to a topic with this policy, in words; None where there is none."""
    if "compact" not in cleanup_policy:
        return None
    return f"{topic} has cleanup.policy={cleanup_policy}: compaction removes records."
