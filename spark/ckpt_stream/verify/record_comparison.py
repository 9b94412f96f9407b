"""Compares the expected records with the records of the sink, as multisets of keys and values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ckpt_stream.verify.recompute_documents import RecomputeResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The number of faulty records with one key and value, in SQL: `e` are expected, `f` are found.
FAULTS = {
    "lost": "CASE WHEN e > f THEN e - f ELSE 0 END",
    "duplicated": "CASE WHEN e > 0 AND f > e THEN f - e ELSE 0 END",
    "alien": "CASE WHEN e = 0 THEN f ELSE 0 END",
}
#: So many faults of one kind are shown; further faults are only counted.
SHOWN = 10
#: So much of a key or value is shown.
TEXT = 200


def compare_records(result: RecomputeResult, expected: DataFrame, found: DataFrame) -> None:
    """Count both sides by two 64-bit hashes of key and value: this needs little memory, and two records that differ have the same
    hashes only with a probability of 2**-128."""
    from pyspark.sql import functions as F

    none = F.lit(None).cast("struct<partition:int,offset:long>")
    claimed = _hashed(expected).withColumns({"e": F.lit(1), "f": F.lit(0), "place": none})
    there = _hashed(found).withColumns({"e": F.lit(0), "f": F.lit(1), "place": F.struct("partition", "offset")})
    names = ["h1", "h2", "e", "f", "place"]
    counted = (
        claimed.select(*names)
        .union(there.select(*names))
        .groupBy("h1", "h2")
        .agg(F.sum("e").alias("e"), F.sum("f").alias("f"), F.max("place").alias("place"))
    )
    sums = [F.coalesce(F.sum(F.expr(count)), F.lit(0)).alias(kind) for kind, count in FAULTS.items()]
    sums += [F.coalesce(F.sum(c), F.lit(0)).alias(n) for c, n in (("e", "expected"), ("f", "found"))]
    totals = counted.agg(*sums).first()
    for name, value in (totals.asDict() if totals else {}).items():
        setattr(result, name, int(value))
    for kind, count in FAULTS.items():
        if getattr(result, kind):
            side = claimed if kind == "lost" else there
            result.examples += _examples(kind, counted.withColumn("records", F.expr(count)), side)


def _hashed(rows: DataFrame) -> DataFrame:
    """Spark's hash ignores nulls; the second hash includes which of key and value is null."""
    from pyspark.sql import functions as F

    key, value = F.col("key"), F.col("value")
    return rows.withColumns(
        {"h1": F.xxhash64(key, value), "h2": F.xxhash64(value, key.isNull(), value.isNull(), F.length(key), key)}
    )


def _examples(kind: str, counted: DataFrame, side: DataFrame) -> list[dict[str, Any]]:
    """A few faults of a kind with key and value, which are read once more from the records."""
    from pyspark.sql import functions as F

    worst = counted.filter("records > 0").select("h1", "h2", "records", "place").limit(SHOWN).collect()
    texts = (
        side.filter(F.col("h1").isin([row["h1"] for row in worst]))
        .groupBy("h1", "h2")
        .agg(F.first("key").alias("key"), F.first("value").alias("value"))
        .collect()
    )
    return examples_by_place(kind, worst, texts)


def examples_by_place(kind: str, worst: Iterable[Any], texts: Iterable[Any]) -> list[dict[str, Any]]:
    """Examples with key and value. Both hashes together identify a faulty record; the first hash alone may match others."""
    wanted = {(row["h1"], row["h2"]): row for row in worst}
    shown = []
    for text in texts:
        row = wanted.get((text["h1"], text["h2"]))
        if row is not None:
            place = row["place"]
            where = {name: place[name] if place is not None else None for name in ("partition", "offset")}
            shown.append(
                {
                    "kind": kind,
                    "records": row["records"],
                    "key": _text(text["key"]),
                    "value": _text(text["value"]),
                    **where,
                }
            )
    return sorted(shown, key=lambda e: (e["partition"] or 0, e["offset"] or 0, e["key"] or ""))


def _text(data: Any) -> str | None:
    return None if data is None else bytes(data)[:TEXT].decode(errors="replace")
