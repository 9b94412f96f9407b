"""Copies records from the source to the sink: key, value and, where the stream reads them, headers.

Option ``fail_at``: the run fails once, at the record with this number (counted from 1, in partition 0). After the restart that
record is copied like any other.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ckpt_stream import fail_on, option, run


def transform(events: DataFrame) -> DataFrame:
    if number := option("fail_at"):
        arrived = (F.col("partition") == 0) & (F.col("offset") == int(number) - 1)
        events = fail_on(events, arrived, f"record {number} arrived", keep=True)
    return events.select("key", "value", *(["headers"] if "headers" in events.columns else []))


if __name__ == "__main__":
    run(transform)
