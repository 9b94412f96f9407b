"""Where a topic's partitions begin and end, for readers of committed records and for readers of all records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TopicEnds:
    """One topic's partitions: the earliest offset, the last stable one, and the high watermark."""

    earliest: Mapping[int, int]
    stable: Mapping[int, int]
    high: Mapping[int, int]

    @property
    def held_back(self) -> list[int]:
        """Partitions with a transaction that is open, or whose end is still being written."""
        return [p for p, high in self.high.items() if self.stable[p] < high]

    def show(self, end: Mapping[int, int]) -> bool:
        """Whether readers of committed records see everything before these offsets."""
        return all(self.stable.get(p, offset) >= offset for p, offset in end.items())
