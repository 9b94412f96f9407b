"""The rules of the audit: they check each record of a sink by its audit header, if the stream writes one.

The header names a record by batch, lane and place in the lane. Every name of a lane that is in the ledger must occur once; any
other name is alien. Of several copies the first counts, and the places of a lane increase within a partition.

The rules work on numpy arrays. The scan in one process passes them chunk by chunk, the Spark job lane by lane. A complete lane is
dropped, so the memory depends on the size of a batch, not on the number of records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ckpt_stream.protocol.settings.stream_settings import MAX_LANES
from ckpt_stream.protocol.verification.scan_result import (
    ALIEN,
    DUPLICATE,
    FAULT_KINDS,
    NAMED,
    OUT_OF_ORDER,
    AuditResult,
    Example,
    ExpectedLanes,
    IncompleteLane,
    Name,
)

#: Means no batch, lane or place; numpy takes a column without nulls without a copy.
NONE = -1
NO_NAME: Name = (NONE, NONE, NONE)
#: More batches than any stream has; multiplied into a key together with the lane, it still fits into 64 bits.
MOST_BATCHES = 1 << 50


def batches_meant(expected: ExpectedLanes, query: int, batch: Any, lane: Any, place: Any) -> Any:
    """For records in one query's range, the index of the batch that each name refers to; NONE for an alien."""
    import numpy as np

    possible = (batch >= 0) & (batch < MOST_BATCHES) & (lane >= 0) & (lane < MAX_LANES)
    codes = np.where(possible, np.where(possible, batch, 0) * MAX_LANES + np.where(possible, lane, 0), NONE)
    found, positions = np.unique(codes, return_inverse=True)
    names = [divmod(int(code), MAX_LANES) for code in found]
    indexes = [expected.meanings[query].get(name) for name in names]
    sizes = [0 if i is None else expected.records[i, lane] for i, (_, lane) in zip(indexes, names, strict=True)]
    meant = np.array([NONE if i is None else i for i in indexes], dtype=np.int64)[positions]
    return np.where(place < np.array(sizes, dtype=np.int64)[positions], meant, NONE)


class LanePlaces:
    """Which places of one lane of one batch were seen."""

    def __init__(self, expected: int) -> None:
        import numpy as np

        self.expected, self.seen = expected, 0
        self._was_seen: Any = np.zeros(expected, dtype=bool)
        #: partition -> the highest place so far.
        self._highest: dict[int, int] = {}

    def add(self, partition: int, places: Any) -> tuple[Any, Any]:
        """Add the next records of a partition, without aliens; returns which are a second copy, and which are out of order."""
        import numpy as np

        again, late = np.ones(len(places), dtype=bool), np.zeros(len(places), dtype=bool)
        if self.complete:
            return again, late
        _, first = np.unique(places, return_index=True)
        again[first] = self._was_seen[places[first]]
        fresh = places[~again]
        self._was_seen[fresh] = True
        self.seen += len(fresh)
        highest = np.maximum.accumulate(np.concatenate(([self._highest.get(partition, NONE)], fresh)))
        late[~again] = highest[1:] > fresh
        self._highest[partition] = int(highest[-1])
        if self.complete:
            self._was_seen = self._was_seen[:0]
        return again, late

    @property
    def complete(self) -> bool:
        return self.seen == self.expected

    @property
    def missing(self) -> tuple[int, ...]:
        """The first of the places that were not seen."""
        return tuple(int(place) for place in (~self._was_seen).nonzero()[0][:NAMED])


class Audit:
    """Checks the records of a topic as they are read, each partition in the order of its offsets."""

    def __init__(self, expected: ExpectedLanes) -> None:
        self._expected = expected
        self._result = AuditResult()
        self._lanes: dict[tuple[int, int], LanePlaces] = {}

    def add(self, partition: int, lies_in: int | None, offsets: Sequence[int], names: Sequence[Name | None]) -> None:
        """Add records of one partition that lie in the range of one batch; a name is None if the header cannot be read."""
        import numpy as np

        batch, lane, place = np.array([name or NO_NAME for name in names], dtype=np.int64).T
        meant = batches_meant(self._expected, self._expected.query_of(lies_in), batch, lane, place)
        kinds = np.where(meant == NONE, FAULT_KINDS.index(ALIEN) + 1, 0)
        codes = np.where(meant == NONE, NONE, meant * MAX_LANES + lane)
        for code in np.unique(codes[codes != NONE]):
            own = np.flatnonzero(codes == code)
            again, late = self._places(*divmod(int(code), MAX_LANES)).add(partition, place[own])
            kinds[own[again]] = FAULT_KINDS.index(DUPLICATE) + 1
            kinds[own[late]] = FAULT_KINDS.index(OUT_OF_ORDER) + 1
        for i in np.flatnonzero(kinds).tolist():
            name = names[i]
            means = None if name is None else self._expected.batch_meant(name, lies_in)
            self._result.add(Example(FAULT_KINDS[kinds[i] - 1], partition, offsets[i], lies_in, name, means))

    def _places(self, index: int, lane: int) -> LanePlaces:
        if (index, lane) not in self._lanes:
            self._lanes[index, lane] = LanePlaces(self._expected.records[index, lane])
        return self._lanes[index, lane]

    def finish(self) -> AuditResult:
        """The result, including the records that were expected and not seen."""
        seen = {key: (places.seen, places.missing) for key, places in self._lanes.items()}
        self._result.incomplete += incomplete_lanes(self._expected, seen)
        return self._result


def incomplete_lanes(
    expected: ExpectedLanes, seen: Mapping[tuple[int, int], tuple[int, Sequence[int]]]
) -> list[IncompleteLane]:
    """The lanes of which records are missing; ``seen``: (index of the batch, lane) -> how many, and the first missing places."""
    found = []
    for (index, lane), records in expected.records.items():
        count, missing = seen.get((index, lane), (0, range(min(NAMED, records))))
        if count < records:
            found.append(IncompleteLane(index, lane, count, tuple(missing)))
    return found
