"""Unread records that the source no longer holds: which records, and whether a user has accepted their loss. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ckpt_stream.protocol.offsets import Offsets

#: The first offset that each partition of the source holds: {topic: {partition: offset}}.
Earliest = Mapping[str, Mapping[int, int]]
#: A message names so many partitions, and gives the number of the others.
NAMED = 5


@dataclass(frozen=True, order=True)
class LostRange:
    """Unread offsets of one source partition that are gone: from `start` to `end`, which is not included."""

    topic: str
    partition: int
    start: int
    #: None: the partition itself is gone, with all records from `start` on.
    end: int | None

    def __str__(self) -> str:
        name = f"{self.topic}-{self.partition}"
        if self.end is None:
            return f"{name} from offset {self.start} on (the partition is gone)"
        return f"{name} offsets {self.start} to {self.end - 1}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def covers(self, other: LostRange) -> bool:
        if (self.topic, self.partition) != (other.topic, other.partition) or self.start > other.start:
            return False
        if self.end is None or other.end is None:
            return self.end is other.end
        return other.end <= self.end


def find_lost(position: Offsets, earliest: Earliest) -> tuple[LostRange, ...]:
    """The ranges that a stream which continues at `position` can no longer read; empty if it has no position yet.

    A partition that is new to the stream should be read from offset 0: records that were deleted from it are lost too.
    """
    if not position:
        return ()
    known = [(topic, int(p), at) for topic, partitions in position.items() for p, at in partitions.items()]
    new = [
        (topic, p, 0)
        for topic, partitions in earliest.items()
        for p in partitions
        if str(p) not in position.get(topic, {})
    ]
    found = []
    for topic, partition, at in (*known, *new):
        first = earliest.get(topic, {}).get(partition)
        if first is None or first > at:
            found.append(LostRange(topic, partition, at, first))
    return tuple(sorted(found))


def beyond_accepted(lost: Iterable[LostRange], accepted: Iterable[LostRange]) -> tuple[LostRange, ...]:
    """The lost ranges that are in no range that a user has accepted."""
    known = tuple(accepted)
    return tuple(one for one in lost if not any(other.covers(one) for other in known))


def after_loss(position: Offsets, lost: Iterable[LostRange]) -> dict[str, dict[str, int]]:
    """The position behind the lost ranges: past the deleted offsets, without the partitions that are gone."""
    moved = {topic: {p: int(at) for p, at in partitions.items()} for topic, partitions in position.items()}
    for one in lost:
        if one.end is not None:
            moved.setdefault(one.topic, {})[str(one.partition)] = one.end
        else:
            moved.get(one.topic, {}).pop(str(one.partition), None)
    return {topic: partitions for topic, partitions in moved.items() if partitions}


def name_ranges(lost: Iterable[LostRange]) -> str:
    """A text that names the first few ranges, and the number of the others."""
    every = list(lost)
    more = f" and {len(every) - NAMED} more partitions" if len(every) > NAMED else ""
    return ", ".join(map(str, every[:NAMED])) + more


def lost_ranges_from(value: Any) -> tuple[LostRange, ...]:
    """The ranges as a stream's configuration holds them; raises ValueError with what is wrong."""
    found = []
    for entry in value:
        if isinstance(entry, LostRange):
            found.append(entry)
            continue
        if not isinstance(entry, Mapping) or set(entry) != {"topic", "partition", "start", "end"}:
            raise ValueError(f"{entry!r} is not an object with topic, partition, start and end")
        one = LostRange(**entry)
        numbers = (one.partition, one.start, *(() if one.end is None else (one.end,)))
        if not isinstance(one.topic, str) or not all(type(n) is int and n >= 0 for n in numbers):
            raise ValueError(f"{entry!r} must name a topic, and numbers from 0 on")
        found.append(one)
    return tuple(found)
