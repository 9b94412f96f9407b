"""The functions that an application calls inside its transform: its own options, and its rules for single records.

The application decides which records are malformed. A setting of the stream decides what happens to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ckpt_stream.spark.poison_records import fail_at, is_one_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The name of the observed metric in Spark's progress.
MALFORMED = "ckpt_malformed"


@dataclass
class TransformContext:
    """What the functions below read of the stream, and what they collect, while its transform is applied."""

    malformed: str = "skip"
    #: Records that count as consumed, because they made an earlier run fail.
    consumed: Sequence[dict[str, Any]] = ()
    options: dict[str, Any] = field(default_factory=dict)
    #: Collected: a frame of malformed records for each call of `well_formed`.
    dead_letters: list[Any] = field(default_factory=list)
    #: Collected: the number of observed metrics, each of which needs its own name.
    observed: int = 0


_context: ContextVar[TransformContext | None] = ContextVar("transform_context", default=None)


@contextmanager
def transform_context(context: TransformContext) -> Iterator[TransformContext]:
    """Let the functions below use this context until the block ends."""
    token = _context.set(context)
    try:
        yield context
    finally:
        _context.reset(token)


def option(name: str, default: Any = None) -> Any:
    """Return one of the application's own settings, which the stream declares as ``options``."""
    context = _context.get()
    return context.options.get(name, default) if context else default


def well_formed(rows: DataFrame, condition: Column) -> DataFrame:
    """Keep the rows that satisfy the condition; the others are skipped, written to the dead-letter topic, or end the run.

    The rows must still have Kafka's columns topic, partition, offset, key and value.
    """
    from pyspark.sql import functions as F

    context = _context.get() or TransformContext()
    good = F.coalesce(condition, F.lit(False))
    if context.malformed == "fail":
        return fail_at(rows, ~good, "a malformed record", once=False)
    context.observed += 1
    name = MALFORMED if context.observed == 1 else f"{MALFORMED}_{context.observed}"
    if context.malformed == "dead_letter":
        context.dead_letters.append(rows.filter(~good).select("key", "value"))
    return rows.observe(name, F.count_if(~good).alias("malformed")).filter(good)


def fail_on(rows: DataFrame, condition: Column, reason: str, *, keep: bool = False) -> DataFrame:
    """End the run at a record that satisfies the condition, once: after the restart that record counts as consumed.

    Afterwards exactly that record, by topic, partition and offset, is left out (or, with ``keep``, processed like any
    other). All other records are processed.
    """
    context = _context.get() or TransformContext()
    if not context.consumed:
        return fail_at(rows, condition, reason, once=True)
    consumed = is_one_of(context.consumed)
    failing = fail_at(rows, condition & ~consumed, reason, once=True)
    return failing if keep else failing.filter(~consumed)
