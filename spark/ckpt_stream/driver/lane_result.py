"""What a lane's task reports to the driver: counts, checksum, and the time of each step."""

from __future__ import annotations

import time
from typing import Any

from ckpt_stream.driver.lane_sums import LaneSums

#: The steps of a lane that writes, in order.
STEPS = ("init_ms", "ledger_ms", "produce_ms", "flush_ms", "commit_ms")
#: The columns of a result, for Spark and for Arrow.
RESULT_SCHEMA = (
    "lane int, records long, bytes long, dead_letters long, checksum string, skipped boolean, differs boolean, "
    + ", ".join(f"{step} double" for step in STEPS)
)


class StepTimes:
    """The milliseconds that each step of a lane takes."""

    def __init__(self) -> None:
        self.milliseconds = dict.fromkeys(STEPS, 0.0)
        self._last = time.perf_counter()

    def end(self, step: str) -> None:
        """Note that this step ends now; it began when the step before it ended."""
        now = time.perf_counter()
        self.milliseconds[step] = round((now - self._last) * 1000, 3)
        self._last = now


def lane_result(lane: int, sums: LaneSums, times: StepTimes, *, skipped: bool, differs: bool) -> dict[str, Any]:
    """The row that a lane's task gives back."""
    return {
        "lane": lane,
        "records": sums.records,
        "bytes": sums.bytes,
        "dead_letters": sums.dead_letters,
        "checksum": str(sums.checksum),
        "skipped": skipped,
        "differs": differs,
        **times.milliseconds,
    }


def result_batch(result: dict[str, Any]) -> Any:
    """A result as an Arrow record batch."""
    import pyarrow as pa

    types = {
        "int": pa.int32(),
        "long": pa.int64(),
        "string": pa.string(),
        "boolean": pa.bool_(),
        "double": pa.float64(),
    }
    columns = [column.split() for column in RESULT_SCHEMA.split(", ")]
    return pa.RecordBatch.from_pylist([result], schema=pa.schema([(name, types[kind]) for name, kind in columns]))
