"""The columns that a transform may return, and the types that the sink needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ckpt_stream.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The columns that a transform may return, with the types to which the sink casts them.
COLUMN_TYPES = {
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "partition": "int",
    "dead_letter": "boolean",
}


def output_columns(names: Sequence[str]) -> dict[str, Column]:
    """The columns of a transform's output, cast for the sink; raises ConfigError for an unknown column or without a value."""
    from pyspark.sql import functions as F

    if unknown := sorted(set(names) - set(COLUMN_TYPES)):
        raise ConfigError(
            f"The transform returns the columns {', '.join(unknown)}, which the sink does not know. Return key, value and, "
            "optionally, headers, partition and dead_letter."
        )
    if "value" not in names:
        raise ConfigError("The transform returns no column 'value'.")
    columns = {name: F.col(name).cast(kind) for name, kind in COLUMN_TYPES.items() if name in names}
    if "dead_letter" in columns:
        columns["dead_letter"] = F.coalesce(columns["dead_letter"], F.lit(False))
    return {"key": F.lit(None).cast("binary")} | columns


def select_output(rows: DataFrame) -> DataFrame:
    """A transform's output with the columns and types that the sink needs."""
    return rows.select(*(column.alias(name) for name, column in output_columns(rows.columns).items()))
