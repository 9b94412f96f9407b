"""Counts words, for ever: each occurrence of a word gives one record with the word's count so far.

The word ERROR makes the run fail. After the restart that record counts as consumed, and every other one is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ckpt_stream import fail_on, run

OUTPUT = "key string, value string"
STATE = "seen long"


def transform(events: DataFrame) -> DataFrame:
    text = F.col("value").cast("string")
    events = fail_on(events, text.rlike(r"(^|\s)ERROR(\s|$)"), "the word ERROR")
    words = events.select(F.explode(F.split(text, r"\s+")).alias("word"), "partition", "offset").filter("word <> ''")
    return words.groupBy("word").applyInPandasWithState(count, OUTPUT, STATE, "append", "NoTimeout")


def count(key: tuple[Any, ...], occurrences: Iterable[Any], state: Any) -> Iterator[Any]:
    import json

    import pandas as pd

    word = key[0]
    seen = state.get[0] if state.exists else 0
    for rows in occurrences:
        counts = range(seen + 1, seen + len(rows) + 1)
        seen += len(rows)
        yield pd.DataFrame({"key": word, "value": [json.dumps({"word": word, "count": n}) for n in counts]})
    state.update((seen,))


if __name__ == "__main__":
    run(transform)
