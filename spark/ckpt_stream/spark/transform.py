"""Applies an application's transform to a frame of source records, and finds out whether the transform keeps state."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.spark.record_rules import TransformContext, transform_context

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Transform = Callable[["DataFrame"], "DataFrame"]

#: Operators that keep state between batches, as Spark's analysed plan names them.
STATEFUL = re.compile(
    r"\b(Aggregate|Deduplicate\w*|FlatMapGroups\w*|MapGroups\w*WithState|TransformWithState\w*|Join|GlobalLimit|Distinct)\b"
)


def apply_transform(
    transform: Transform, events: DataFrame, config: StreamConfig, consumed: Sequence[dict[str, Any]]
) -> tuple[DataFrame, list[DataFrame]]:
    """The transform's output, and one frame of malformed records for each rule that sends them to the dead-letter topic.

    ``consumed`` are the poison records that the transform does not fail on again.
    """
    with transform_context(TransformContext(config.malformed, consumed, dict(config.options))) as context:
        rows = transform(events)
    return rows, context.dead_letters


def keeps_state(rows: DataFrame) -> bool:
    """Whether the transform keeps state, which is stored only in the checkpoint."""
    frame: Any = rows
    return bool(STATEFUL.search(frame._jdf.queryExecution().analyzed().toString()))
