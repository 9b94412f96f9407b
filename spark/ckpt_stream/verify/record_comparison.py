"""The comparison of what the sink should hold with what it holds, as a multiset of keys and values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ckpt_stream.verify.recompute_documents import RecomputeResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: How many records of one key and value are at fault, in SQL: `e` of them are expected, `f` are found.
FAULTS = {
    "lost": "CASE WHEN e > f THEN e - f ELSE 0 END",
    "duplicated": "CASE WHEN e > 0 AND f > e THEN f - e ELSE 0 END",
    "alien": "CASE WHEN e = 0 THEN f ELSE 0 END",
}
#: Faults of one kind that are shown; the rest is only counted.
SHOWN = 10
#: As much of a key or value as is shown.
TEXT = 200


def compare_records(result: RecomputeResult, expected: DataFrame, found: DataFrame) -> None:
    """Count both sides by two 64-bit hashes of key and value: memory follows neither side, and chance has 2**-128."""
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
    """Spark's hash passes over a null: the second hash says where the null was."""
    from pyspark.sql import functions as F

    key, value = F.col("key"), F.col("value")
    return rows.withColumns(
        {"h1": F.xxhash64(key, value), "h2": F.xxhash64(value, key.isNull(), value.isNull(), F.length(key), key)}
    )


def _examples(kind: str, counted: DataFrame, side: DataFrame) -> list[dict[str, Any]]:
    """A few faults of a kind with key and value, which are looked up once more where they come from."""
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
    """Examples by their place: both hashes say which key and value is at fault, the first one may be that of others too."""
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
