"""Poison records: how a run names the record that made it fail, and how later runs recognise that record.

A poison record is named by its topic, partition and offset. The driver gets only the text of an exception from Spark, so the
place of the record is part of that text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ckpt_stream.protocol.run_files.damaged_files import naming_file
from ckpt_stream.protocol.run_files.record_files import POISON, list_from_json
from ckpt_stream.protocol.storage import ReadableFiles

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Comes before the record's place in the text of the exception.
_MARK = "ckpt-poison:"


def read_poison(files: ReadableFiles) -> list[dict[str, Any]]:
    """The stream's list of poison records, oldest first."""
    with naming_file(POISON):
        return list_from_json(files.read(POISON), "list of poison records")


def consumed_records(files: ReadableFiles) -> list[dict[str, Any]]:
    """The poison records that count as consumed: each of them has ended one run, and must not end another one."""
    return [poison for poison in read_poison(files) if poison.get("once")]


def fail_at(rows: DataFrame, condition: Column, reason: str, *, once: bool) -> DataFrame:
    """Raise an error that names the record, for each record that satisfies the condition."""
    from pyspark.sql import functions as F

    place = F.to_json(
        F.struct("topic", "partition", "offset", F.lit(once).alias("once"), F.lit(reason).alias("reason"))
    )
    message = F.concat(F.lit(_MARK), place)
    passes = F.when(F.coalesce(condition, F.lit(False)), F.raise_error(message).cast("boolean")).otherwise(F.lit(True))
    return rows.filter(passes)


def is_one_of(poison: Sequence[Mapping[str, Any]]) -> Column:
    """Whether a row is one of these records.

    It uses two sets and not a chain of conditions, because Spark handles such a chain recursively.
    """
    from pyspark.sql import functions as F

    # The offset is compared first, so that the text of the place is made for few rows only. No topic name contains a slash.
    offsets = {int(p["offset"]) for p in poison}
    places = {f"{p['topic']}/{int(p['partition'])}/{int(p['offset'])}" for p in poison}
    place = F.concat_ws("/", "topic", F.col("partition").cast("string"), F.col("offset").cast("string"))
    found: Column = F.col("offset").isin(sorted(offsets)) & place.isin(sorted(places))
    return found


def may_be_read(poison: Mapping[str, Any], committed: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether a query that continues from these offsets may still read the record."""
    end = committed.get(str(poison["topic"]), {}).get(str(poison["partition"]))
    return end is None or int(poison["offset"]) >= int(end)


def find_poison(text: str) -> dict[str, Any] | None:
    """The poison record named in the text of an exception, if there is one."""
    for found in re.finditer(re.escape(_MARK), text):
        try:
            poison, _ = json.JSONDecoder().raw_decode(text, found.end())
        except ValueError:
            continue
        if isinstance(poison, dict) and {"topic", "partition", "offset"} <= poison.keys():
            return poison
    return None
