"""A small stream that runs once, so that its JVM writes the classes that every stream loads into an archive.

It uses windows, state, a checkpoint and Python workers, but no Kafka.
"""

import sys
from collections.abc import Iterator
from typing import Any


def main(folder: str) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    def same(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    source = f"{folder}/source"
    spark.range(100).selectExpr("cast(id as string) AS key", "current_timestamp() AS time").write.json(source)
    events = spark.readStream.schema("key string, time timestamp").json(source)
    counts = events.withWatermark("time", "1 second").groupBy(F.window("time", "1 second"), "key").count()

    def write(batch: Any, number: int) -> None:
        rows = batch.select(F.to_json(F.struct("*")).alias("value"), F.xxhash64("key").alias("hash"))
        rows.repartition(2).mapInArrow(same, rows.schema).collect()

    query = counts.writeStream.foreachBatch(write).outputMode("update")
    query.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
