"""Counts words: for each word in a batch, the batch writes the number of times that the word has occurred so far.

With ``max_offsets_per_batch=1`` every record is a batch, so every occurrence of a word gives a record. The word ERROR makes the
run fail. After the restart that record counts as consumed, and all other records are counted.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ckpt_stream import fail_on, run


def transform(events: DataFrame) -> DataFrame:
    text = F.col("value").cast("string")
    events = fail_on(events, text.rlike(r"(^|\s)ERROR(\s|$)"), "the word ERROR")
    words = events.select(F.explode(F.split(text, r"\s+")).alias("word")).filter("word <> ''")
    counts = words.groupBy("word").count()
    return counts.select(F.col("word").alias("key"), F.to_json(F.struct("word", "count")).alias("value"))


if __name__ == "__main__":
    run(transform, output_mode="update")
