"""What an application says about single records: these are malformed, this one makes me fail.

Both functions are called inside a transform. How malformed records are treated is the stream's setting, so the
application does not decide it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Name of the observed metric in Spark's progress.
MALFORMED = "ckpt_malformed"
_MARK = "ckpt-poison:"


@dataclass
class Handling:
    """The stream's settings for single records, while its transform is applied."""

    malformed: str = "skip"
    #: Records that count as consumed: they made an earlier run fail.
    consumed: Sequence[dict[str, Any]] = ()
    options: dict[str, Any] = field(default_factory=dict)
    dead_letters: list[Any] = field(default_factory=list)
    observed: int = 0


_handling: ContextVar[Handling | None] = ContextVar("handling", default=None)


@contextmanager
def handling(settings: Handling) -> Iterator[Handling]:
    token = _handling.set(settings)
    try:
        yield settings
    finally:
        _handling.reset(token)


def option(name: str, default: Any = None) -> Any:
    """One of the stream's ``options``, which are the application's own."""
    current = _handling.get()
    return current.options.get(name, default) if current else default


def well_formed(rows: DataFrame, condition: Column) -> DataFrame:
    """Keep the rows that satisfy the condition; the others are skipped and counted, set aside, or end the run.

    The rows must still have Kafka's columns topic, partition, offset, key and value.
    """
    from pyspark.sql import functions as F

    current = _handling.get() or Handling()
    good = F.coalesce(condition, F.lit(False))
    if current.malformed == "fail":
        return _fail_on(rows, ~good, "a malformed record", once=False)
    current.observed += 1
    name = MALFORMED if current.observed == 1 else f"{MALFORMED}_{current.observed}"
    if current.malformed == "dead_letter":
        current.dead_letters.append(rows.filter(~good).select("key", "value"))
    return rows.observe(name, F.count_if(~good).alias("malformed")).filter(good)


def fail_on(rows: DataFrame, condition: Column, reason: str, *, keep: bool = False) -> DataFrame:
    """End the run at a record that satisfies the condition, once: after the restart it counts as consumed.

    Exactly that record, by topic, partition and offset, is left out afterwards (or, with ``keep``, processed like any
    other); every other one is processed.
    """

    current = _handling.get() or Handling()
    if not current.consumed:
        return _fail_on(rows, condition, reason, once=True)
    consumed = _is_one_of(rows, current.consumed)
    failing = _fail_on(rows, condition & ~consumed, reason, once=True)
    return failing if keep else failing.filter(~consumed)


def _is_one_of(rows: DataFrame, poison: Sequence[Mapping[str, Any]]) -> Column:
    """Two sets to look into, however many they are: Spark walks a chain of conditions recursively."""
    from pyspark.sql import functions as F

    # The offset first: hardly a row goes on to have its place written as a text. No topic's name holds a slash.
    offsets = {int(p["offset"]) for p in poison}
    places = {f"{p['topic']}/{int(p['partition'])}/{int(p['offset'])}" for p in poison}
    place = F.concat_ws("/", "topic", F.col("partition").cast("string"), F.col("offset").cast("string"))
    found: Column = F.col("offset").isin(sorted(offsets)) & place.isin(sorted(places))
    return found


def may_be_met(poison: Mapping[str, Any], committed: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether a query that goes on from these offsets may still read the record."""
    end = committed.get(str(poison["topic"]), {}).get(str(poison["partition"]))
    return end is None or int(poison["offset"]) >= int(end)


def _fail_on(rows: DataFrame, condition: Column, reason: str, *, once: bool) -> DataFrame:
    from pyspark.sql import functions as F

    where = F.to_json(
        F.struct("topic", "partition", "offset", F.lit(once).alias("once"), F.lit(reason).alias("reason"))
    )
    message = F.concat(F.lit(_MARK), where)
    stop = F.when(F.coalesce(condition, F.lit(False)), F.raise_error(message).cast("boolean")).otherwise(F.lit(True))
    return rows.filter(stop)


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
