"""Each record as 10,000 rows, one Arrow batch, with a pause of `pause` ms in the JVM before each: a lane then waits for its next
batch nearly all the time, so that whatever ends its input ends it between two batches."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ckpt_stream import option, run

ROWS = 10_000


def transform(events: DataFrame) -> DataFrame:
    many = events.withColumn("n", F.explode(F.sequence(F.lit(0), F.lit(ROWS - 1))))
    parts = [F.col("value").cast("string"), F.col("n").cast("string")]
    if pause := option("pause"):
        slept = F.reflect(F.lit("java.lang.Thread"), F.lit("sleep"), F.lit(int(pause)).cast("long"))
        parts.append(F.when(F.when(F.col("n") == 0, slept) == "never", "never"))  # a null, which concat_ws passes over
    return many.select("key", F.concat_ws("-", *parts).alias("value"))


if __name__ == "__main__":
    run(transform)
