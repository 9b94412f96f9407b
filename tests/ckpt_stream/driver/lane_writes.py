"""Lanes as the tests write them: a specification, rows, and what is in the ledger afterwards."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ckpt_stream.driver.lane import write_lane
from ckpt_stream.driver.lane_spec import LaneSettings, LaneSpec
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord, ledger_topic
from tests.ckpt_stream.driver.spark_worker import task_rows
from tests.ckpt_stream.samples import about_to_write, sink_of
from tests.support.fake_kafka import FakeBroker

SINK, DEAD, LEDGER = "orders-out", "orders-dead", ledger_topic("orders")


def spec(batch: int = 0, *, lanes: int = 1, settings: dict[str, Any] | None = None, **changes: Any) -> LaneSpec:
    values: dict[str, Any] = {
        "sink": sink_of(lanes), "adopted": None, "kafka": {}, "run_id": "run-1", "application": "1.0",
        "transaction_timeout_ms": 60_000, "history": 3,
    }  # fmt: skip
    about: dict[str, Any] = {
        "start": {"orders": {"0": batch * 10}}, "end": {"orders": {"0": batch * 10 + 10}}, "offsets": f"entry {batch}",
        "sink_start": {SINK: {"0": 0, "1": 0}},
    }  # fmt: skip
    return LaneSpec(
        LaneSettings(**{**values, **(settings or {})}), about_to_write(batch, lanes), **{**about, **changes}
    )


def rows(*values: str, **columns: list[Any]) -> Any:
    """Arrow rows with the columns that Spark gives a lane; a row's hash is a function of its value."""
    found: dict[str, Any] = {
        "key": pa.array([b"k"] * len(values), pa.binary()),
        "value": pa.array([value.encode() for value in values], pa.binary()),
        "hash": pa.array([sum(value.encode()) for value in values], pa.int64()),
    }
    types = {"partition": pa.int32(), "dead_letter": pa.bool_()}
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    found |= {name: pa.array(column, types.get(name, headers)) for name, column in columns.items()}
    return pa.record_batch(found)


def write(spec: LaneSpec, *batches: Any, lane: int = 0, **how: Any) -> dict[str, Any]:
    with task_rows(*(batches or [rows("a", "b")]), **how) as given:
        return write_lane(spec, lane, given)


def ledger(broker: FakeBroker, lane: int = 0) -> list[LedgerRecord]:
    return [LedgerRecord.from_json(value) for value in broker.values(LEDGER, lane) if value is not None]


def calls(broker: FakeBroker, *names: str) -> list[str]:
    return [name for name, _ in broker.calls if name in names]
