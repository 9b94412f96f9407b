"""Writes a batch exactly once: divides its rows into lanes and lets Spark run one task for each lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ckpt_stream.driver.lane import LaneWriter
from ckpt_stream.driver.lane_result import RESULT_SCHEMA
from ckpt_stream.driver.lane_spec import LaneSpec
from ckpt_stream.errors import BatchNotRun
from ckpt_stream.protocol.offsets import Offsets
from ckpt_stream.spark.output import output_columns
from ckpt_stream.spark.record_hash import record_hash_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: With this many source records or more, it is faster to read them with all cores before a single lane writes them.
MANY_OFFSETS = 10_000


class ExactlyOnceWriter:
    """Writes a batch with one Kafka transaction per lane."""

    def __init__(self) -> None:
        #: The columns by ledger format. They are the same for every batch of a query, and it takes 20 ms to build them.
        self._columns: dict[int, list[Column]] = {}

    def __call__(self, rows: DataFrame, spec: LaneSpec) -> tuple[dict[str, Any], ...]:
        lanes, ledger_format = spec.settings.sink.lanes, spec.ledger_format
        if ledger_format not in self._columns:
            self._columns[ledger_format] = _lane_columns(rows.columns, ledger_format)
        divided = into_lanes(rows.select(*self._columns[ledger_format]), lanes, _offsets_between(spec.start, spec.end))
        done = divided.mapInArrow(LaneWriter(spec), RESULT_SCHEMA).collect()
        if sorted(row["lane"] for row in done) != list(range(lanes)):
            raise BatchNotRun(
                f"Spark ran lanes {sorted(r['lane'] for r in done)} instead of 0 to {lanes - 1}. The batch does not count as "
                "written. What helps: start again; the next run writes only lanes that the ledger lacks."
            )
        return tuple(row.asDict() for row in sorted(done, key=lambda row: row["lane"]))


def _lane_columns(names: Sequence[str], ledger_format: int) -> list[Column]:
    columns = output_columns(names)
    columns["hash"] = record_hash_column(columns["key"], columns["value"], columns.get("headers"), ledger_format)
    return [column.alias(name) for name, column in columns.items()]


def into_lanes(rows: DataFrame, lanes: int, offsets: int) -> DataFrame:
    """Divide rows into lanes by key (by value where the key is null), so that a replay puts each row into the same lane.

    A single lane gets all rows. If there are few, its task reads and transforms them itself; if there are many, all cores do that
    first.
    """
    from pyspark.sql import functions as F

    if lanes > 1:
        return rows.repartition(lanes, F.coalesce("key", "value"))
    return rows.repartition(1) if offsets >= MANY_OFFSETS else rows.coalesce(1)


def _offsets_between(start: Offsets, end: Offsets) -> int:
    return sum(
        at - start.get(topic, {}).get(partition, 0) for topic, ends in end.items() for partition, at in ends.items()
    )
