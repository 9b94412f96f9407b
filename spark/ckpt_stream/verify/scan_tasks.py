"""The functions that the tasks of the scan run inside Spark, on whole arrays: sums per batch, aliens, the places of each lane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ckpt_stream.protocol.verification.audit import NO_NAME, NONE, LanePlaces, batches_meant, incomplete_lanes
from ckpt_stream.protocol.verification.scan_result import (
    ALIEN,
    DUPLICATE,
    LISTED,
    OUT_OF_ORDER,
    AuditResult,
    Boundaries,
    Example,
    ExpectedLanes,
    Scan,
    Sums,
)

SUMS_SCHEMA = (
    "kind string, lies_in long, records long, checksum long, "
    "partition long, offset long, batch long, lane long, place long"
)
LANES_SCHEMA = (
    "kind string, index long, lane long, partition long, offset long, place long, records long, missing array<long>"
)
NAME_COLUMNS = ("batch", "lane", "place")


def hash_name(ledger_format: int) -> str:
    """The name of the column with the records' hashes in a ledger format."""
    return f"hash_{ledger_format}"


class Collector:
    """The function that Spark maps over a partition's records; yields sums per batch, and the records that belong to no batch."""

    def __init__(self, boundaries: Boundaries, expected: ExpectedLanes | None) -> None:
        self.boundaries, self.expected = boundaries, expected

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        sums = _SumsAndAliens(self.boundaries, self.expected)
        for rows in batches:
            sums.add({name: rows.column(name).to_numpy(zero_copy_only=False) for name in rows.schema.names})
        yield pa.RecordBatch.from_pylist(sums.rows(), schema=_arrow_schema(SUMS_SCHEMA))


class _SumsAndAliens:
    """The result of one task. In its arrays, position 0 is before the first batch, and position 1 is the batch with index 0."""

    def __init__(self, boundaries: Boundaries, expected: ExpectedLanes | None) -> None:
        import numpy as np

        self._boundaries, self._expected = boundaries, expected
        self._formats = np.array([boundaries.format_of(None), *boundaries.formats], dtype=np.int64)
        #: partition -> records and checksums by position.
        self._sums: dict[int, tuple[Any, Any]] = {}
        self._result = AuditResult()
        self._begins = np.array(expected.begins if expected else (), dtype=np.int64)

    def add(self, rows: Mapping[str, Any]) -> None:
        import numpy as np

        for partition in np.unique(rows["partition"]):
            own = rows["partition"] == partition
            self._add(int(partition), {name: column[own] for name, column in rows.items()})

    def _add(self, partition: int, rows: Mapping[str, Any]) -> None:
        import numpy as np

        begins = np.array(self._boundaries.offsets.get(partition, ()), dtype=np.int64)
        positions = np.searchsorted(begins, rows["offset"], side="right")
        if partition not in self._sums:
            size = len(begins) + 1
            self._sums[partition] = (np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64))
        records, checksums = self._sums[partition]
        records += np.bincount(positions, minlength=len(records))
        np.add.at(checksums, positions, self._hashes(rows, positions))  # wraps around modulo 2**64, like the checksum
        if self._expected is not None:
            self._add_aliens(self._expected, partition, rows, positions)

    def _hashes(self, rows: Mapping[str, Any], positions: Any) -> Any:
        """Each record's hash by the format of the batch in whose range it lies."""
        import numpy as np

        formats = self._formats[positions] if len(self._formats) > 1 else np.full(len(positions), self._formats[0])
        first, *others = np.unique(formats)
        hashes = rows[hash_name(int(first))]
        for other in others:
            hashes = np.where(formats == other, rows[hash_name(int(other))], hashes)
        return hashes

    def _add_aliens(self, expected: ExpectedLanes, partition: int, rows: Mapping[str, Any], positions: Any) -> None:
        import numpy as np

        names = [rows[column] for column in NAME_COLUMNS]
        queries = np.maximum(np.searchsorted(self._begins, positions - 1, side="right") - 1, 0)
        meant = np.full(len(positions), NONE, dtype=np.int64)
        for query in np.unique(queries):
            own = queries == query
            meant[own] = batches_meant(expected, int(query), *(column[own] for column in names))
        aliens = np.flatnonzero(meant == NONE)
        for i in aliens[:LISTED]:
            batch, lane, place = (int(column[i]) for column in names)
            name = None if batch == NONE else (batch, lane, place)
            self._result.add(Example(ALIEN, partition, int(rows["offset"][i]), _index(int(positions[i])), name))
        self._result.counts[ALIEN] += len(aliens[LISTED:])

    def rows(self) -> list[dict[str, Any]]:
        sums = [
            {
                "kind": "sum",
                "partition": partition,
                "lies_in": _index(position),
                "records": int(records[position]),
                "checksum": int(checksums[position]),
            }
            for partition, (records, checksums) in self._sums.items()
            for position in range(len(records))
            if records[position]
        ]
        if self._expected is None:
            return sums
        listed = [
            {
                "kind": ALIEN,
                "lies_in": e.lies_in,
                "partition": e.partition,
                "offset": e.offset,
                **dict(zip(NAME_COLUMNS, e.name or NO_NAME, strict=True)),
            }
            for e in self._result.examples
        ]
        return [*sums, {"kind": "aliens", "records": self._result.counts[ALIEN]}, *listed]


def _index(position: int) -> int | None:
    return position - 1 if position else None


def audit_lane(table: Any) -> Any:
    """Check one lane of one batch, with all its records: which places were seen once, twice, out of order or never."""
    import numpy as np
    import pyarrow as pa

    columns = {name: table.column(name).to_numpy() for name in table.schema.names}
    common = {"index": int(columns["index"][0]), "lane": int(columns["lane"][0])}
    order = np.lexsort((columns["offset"], columns["partition"]))
    partition, offset, place = (columns[name][order] for name in ("partition", "offset", "place"))
    places = LanePlaces(int(columns["expected"][0]))
    again, late = np.zeros(len(place), dtype=bool), np.zeros(len(place), dtype=bool)
    for number in np.unique(partition):
        own = partition == number
        again[own], late[own] = places.add(int(number), place[own])
    rows: list[dict[str, Any]] = [
        {"kind": "seen", **common, "records": places.seen, "missing": list(places.missing)},
    ]
    for kind, found in ((DUPLICATE, np.flatnonzero(again)), (OUT_OF_ORDER, np.flatnonzero(late))):
        rows.append({"kind": kind, **common, "records": len(found)})
        for i in found[:LISTED]:
            where = {"partition": int(partition[i]), "offset": int(offset[i]), "place": int(place[i])}
            rows.append({"kind": kind, **common, **where})
    return pa.Table.from_pylist(rows, schema=_arrow_schema(LANES_SCHEMA))


def gather_sums(rows: Iterable[Any], topic: str, expected: ExpectedLanes | None) -> Scan:
    """Put together what the tasks found."""
    scan = Scan(topic=topic, audit=None if expected is None else AuditResult())
    aliens: list[Example] = []
    for row in rows:
        if row["kind"] == "sum":
            scan.batches.setdefault(row["lies_in"], Sums()).add(row["records"], row["checksum"], row["partition"])
            scan.records += row["records"]
        elif row["kind"] == "aliens" and scan.audit is not None:
            scan.audit.counts[ALIEN] += row["records"]
        else:
            name = None if row["batch"] == NONE else (row["batch"], row["lane"], row["place"])
            means = expected.batch_meant(name, row["lies_in"]) if expected and name else None
            aliens.append(Example(ALIEN, row["partition"], row["offset"], row["lies_in"], name, means))
    if scan.audit is not None:
        scan.audit.examples += _first(aliens)
    return scan


def gather_lanes(rows: Iterable[Any], boundaries: Boundaries, expected: ExpectedLanes, result: AuditResult) -> None:
    """Add what the lanes of the batches show; a lane of which nothing was seen has no row."""
    numbers = {lane.index: lane.batch for lane in expected.all}
    seen: dict[tuple[int, int], tuple[int, Sequence[int]]] = {}
    examples: dict[str, list[Example]] = {DUPLICATE: [], OUT_OF_ORDER: []}
    for row in rows:
        index, lane, kind = row["index"], row["lane"], row["kind"]
        if kind == "seen":
            seen[index, lane] = (row["records"], row["missing"])
        elif row["partition"] is None:
            result.counts[kind] += row["records"]
        else:
            lies_in, _ = boundaries.batch_at(row["partition"], row["offset"])
            name = (numbers[index], lane, row["place"])
            examples[kind].append(Example(kind, row["partition"], row["offset"], lies_in, name, index))
    for found in examples.values():
        result.examples += _first(found)
    result.incomplete += incomplete_lanes(expected, seen)


def _first(examples: Iterable[Example]) -> list[Example]:
    return sorted(examples, key=lambda e: (e.partition, e.offset))[:LISTED]


def _arrow_schema(text: str) -> Any:
    import pyarrow as pa

    types = {"long": pa.int64(), "string": pa.string(), "array<long>": pa.list_(pa.int64())}
    return pa.schema([(name, types[kind]) for name, kind in (column.split() for column in text.split(", "))])
