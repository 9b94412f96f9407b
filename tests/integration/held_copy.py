"""Copies like copy_topic, but through Python in small parts, and passes a crash point in the middle of a partition.

For the negative control: Spark's own sink has no crash points, this transform has one just before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame

from ckpt_stream import run
from ckpt_stream.machine import crashes
from ckpt_stream.protocol import crash_points

#: After so many parts the first ones have left this process's output buffer, and Spark has them.
PARTS_BEFORE = 4


def pass_on(parts: Iterable[Any]) -> Iterator[Any]:
    for number, part in enumerate(parts):
        if number == PARTS_BEFORE:
            crashes.reach(crash_points.MID_PRODUCE, batch=0, lane=TaskContext.get().partitionId())  # type: ignore[union-attr]
        yield part


def transform(events: DataFrame) -> DataFrame:
    return events.select("key", "value").mapInArrow(pass_on, "key binary, value binary")


if __name__ == "__main__":
    run(transform)
