"""The rules of the scan over whole arrays, inside Spark's tasks: sums per batch, and each lane's places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt_stream.config import MAX_LANES
from ckpt_stream.sink_facts import (
    ALIEN,
    DUPLICATE,
    LISTED,
    NAMED,
    OUT_OF_ORDER,
    AuditFacts,
    Boundaries,
    Claims,
    Example,
)

SUMS_SCHEMA = (
    "kind string, here long, records long, checksum long, "
    "partition long, offset long, batch long, lane long, place long"
)
LANES_SCHEMA = (
    "kind string, turn long, lane long, partition long, offset long, place long, records long, missing array<long>"
)
#: Stands for no batch, lane or place: a column without nulls goes to numpy as it is.
NONE = -1
#: Far more batches than a stream can have, and still a 64-bit number when the lane is added.
MOST_BATCHES = 1 << 50


def hash_name(ledger_format: int) -> str:
    """The column with the records' hashes as a ledger format has them."""
    return f"hash_{ledger_format}"


class Collector:
    """The function that Spark maps over a partition's records: yields sums per batch, and records of no batch."""

    def __init__(self, boundaries: Boundaries, claims: Claims | None) -> None:
        self.boundaries, self.claims = boundaries, claims

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        tally = _Tally(self.boundaries, self.claims)
        for rows in batches:
            tally.add({name: rows.column(name).to_numpy(zero_copy_only=False) for name in rows.schema.names})
        yield pa.RecordBatch.from_pylist(tally.rows(), schema=_arrow_schema(SUMS_SCHEMA))


class _Tally:
    """Sums per partition and batch over numpy arrays."""

    def __init__(self, boundaries: Boundaries, claims: Claims | None) -> None:
        import numpy as np

        self._boundaries = boundaries
        #: By place; 0 is before the first batch.
        self._formats = np.array([boundaries.format_of(None), *boundaries.formats], dtype=np.int64)
        #: partition -> records and checksums; place 0 is before the first batch.
        self._sums: dict[int, tuple[Any, Any]] = {}
        self._facts = AuditFacts() if claims is not None else None
        self._begins = np.array(claims.begins if claims else (), dtype=np.int64)
        self._known = [_Known.of(turns, claims.records) for turns in claims.turns] if claims else []

    def add(self, rows: Mapping[str, Any]) -> None:
        import numpy as np

        for partition in np.unique(rows["partition"]):
            here = rows["partition"] == partition
            self._add(int(partition), {name: column[here] for name, column in rows.items()})

    def _add(self, partition: int, rows: Mapping[str, Any]) -> None:
        import numpy as np

        begins = np.array(self._boundaries.offsets.get(partition, ()), dtype=np.int64)
        index = np.searchsorted(begins, rows["offset"], side="right")
        if partition not in self._sums:
            size = len(begins) + 1
            self._sums[partition] = (np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64))
        records, checksums = self._sums[partition]
        records += np.bincount(index, minlength=len(records))
        np.add.at(checksums, index, self._hashes(rows, index))  # wraps around, as a checksum modulo 2**64 wants
        if self._facts is not None:
            turns = self._meant(rows, index)
            aliens = np.flatnonzero(turns == NONE)
            for i in aliens[:LISTED]:
                self._facts.note(_example(ALIEN, partition, rows, int(i), _turn(int(index[i]))))
            self._facts.counts[ALIEN] += len(aliens[LISTED:])

    def _hashes(self, rows: Mapping[str, Any], index: Any) -> Any:
        """Each record's hash by the format of the batch in whose place it lies."""
        import numpy as np

        formats = self._formats[index] if len(self._formats) > 1 else np.full(len(index), self._formats[0])
        first, *others = np.unique(formats)
        hashes = rows[hash_name(int(first))]
        for other in others:
            hashes = np.where(formats == other, rows[hash_name(int(other))], hashes)
        return hashes

    def _meant(self, rows: Mapping[str, Any], index: Any) -> Any:
        """The turn that each record's name means; NONE for no lane of any batch, or a place that the lane does not have."""
        import numpy as np

        eras = np.maximum(np.searchsorted(self._begins, index - 1, side="right") - 1, 0)
        turns = np.full(len(index), NONE, dtype=np.int64)
        for era in np.unique(eras):
            here = eras == era
            turns[here] = self._known[era].meant(rows["batch"][here], rows["lane"][here], rows["place"][here])
        return turns

    def rows(self) -> list[dict[str, Any]]:
        sums = [
            {
                "kind": "sum",
                "partition": partition,
                "here": _turn(i),
                "records": int(records[i]),
                "checksum": int(checksums[i]),
            }
            for partition, (records, checksums) in self._sums.items()
            for i in range(len(records))
            if records[i]
        ]
        if self._facts is None:
            return sums
        listed = [
            {
                "kind": ALIEN,
                "here": e.here,
                "partition": e.partition,
                "offset": e.offset,
                **dict(zip(("batch", "lane", "place"), e.name or (NONE,) * 3, strict=True)),
            }
            for e in self._facts.examples
        ]
        return [*sums, {"kind": "aliens", "records": self._facts.counts[ALIEN]}, *listed]


@dataclass(frozen=True)
class _Known:
    """The names that mean something in one era, as sorted arrays."""

    codes: Any
    turns: Any
    expected: Any

    @classmethod
    def of(cls, turns: Mapping[tuple[int, int], int], records: Mapping[tuple[int, int], int]) -> _Known:
        import numpy as np

        rows = sorted((batch * MAX_LANES + lane, turn, records[turn, lane]) for (batch, lane), turn in turns.items())
        columns: Sequence[Any] = list(zip(*rows, strict=True)) or ((), (), ())
        return cls(*(np.array(column, dtype=np.int64) for column in columns))

    def meant(self, batch: Any, lane: Any, place: Any) -> Any:
        import numpy as np

        if not len(self.codes):
            return np.full(len(batch), NONE, dtype=np.int64)
        possible = (lane >= 0) & (lane < MAX_LANES) & (batch < MOST_BATCHES)
        code = np.where(possible, np.where(possible, batch, 0) * MAX_LANES + np.where(possible, lane, 0), NONE)
        at = np.minimum(np.searchsorted(self.codes, code), len(self.codes) - 1)
        return np.where((self.codes[at] == code) & (place < self.expected[at]), self.turns[at], NONE)


def _turn(place: int) -> int | None:
    return place - 1 if place else None


def _example(kind: str, partition: int, rows: Mapping[str, Any], i: int, here: int | None) -> Example:
    batch, lane, place = (int(rows[name][i]) for name in ("batch", "lane", "place"))
    return Example(kind, partition, int(rows["offset"][i]), here, None if batch == NONE else (batch, lane, place))


def account_lane(table: Any) -> Any:
    """One lane of one batch, all its records together: which places were seen, twice, too late or never."""
    import pyarrow as pa

    columns = {name: table.column(name).to_numpy() for name in table.schema.names}
    turn, lane, expected = (int(columns[name][0]) for name in ("turn", "lane", "expected"))
    found = places_of(columns["partition"], columns["offset"], columns["place"], expected)
    common = {"turn": turn, "lane": lane}
    rows: list[dict[str, Any]] = [{"kind": "seen", **common, "records": found.seen, "missing": found.missing}]
    for kind, records in ((DUPLICATE, found.duplicates), (OUT_OF_ORDER, found.out_of_order)):
        rows.append({"kind": kind, **common, "records": len(records)})
        for partition, offset, place in records[:LISTED]:
            rows.append({"kind": kind, **common, "partition": partition, "offset": offset, "place": place})
    return pa.Table.from_pylist(rows, schema=_arrow_schema(LANES_SCHEMA))


@dataclass(frozen=True)
class Places:
    """What was seen of a lane; records as (partition, offset, place), in the order of the topic."""

    seen: int
    missing: list[int]
    duplicates: list[tuple[int, int, int]]
    out_of_order: list[tuple[int, int, int]]


def places_of(partition: Any, offset: Any, place: Any, expected: int) -> Places:
    """The rules of the audit over whole arrays: the first copy counts, and within a partition places only go up."""
    import numpy as np

    order = np.lexsort((offset, partition))
    partition, offset, place = partition[order], offset[order], place[order]
    _, first = np.unique(place, return_index=True)
    again = np.ones(len(place), dtype=bool)
    again[first] = False
    late = np.zeros(len(place), dtype=bool)
    for number in np.unique(partition):
        mine = np.flatnonzero((partition == number) & ~again)
        late[mine] = np.maximum.accumulate(place[mine]) > place[mine]
    seen = np.zeros(expected, dtype=bool)
    seen[place] = True

    def listed(which: Any) -> list[tuple[int, int, int]]:
        return [(int(partition[i]), int(offset[i]), int(place[i])) for i in np.flatnonzero(which)]

    return Places(len(first), [int(n) for n in np.flatnonzero(~seen)[:NAMED]], listed(again), listed(late))


def _arrow_schema(text: str) -> Any:
    import pyarrow as pa

    types = {"long": pa.int64(), "string": pa.string(), "array<long>": pa.list_(pa.int64())}
    return pa.schema([(name, types[kind]) for name, kind in (column.split() for column in text.split(", "))])
