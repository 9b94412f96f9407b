"""Counts a sink with a plain consumer, without the stream's ledger or run records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from airflow_ckpt.examples.topic_values import read_values


@dataclass(frozen=True)
class SinkCount:
    """The number of records in the sink, compared with the expected records."""

    sink: str
    source_records: int
    sink_committed: int
    lost: int
    duplicated: int
    wrong: int
    aborted_hidden: int
    kills: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def count_sink(
    kafka: Mapping[str, Any], topic: str, expected: Mapping[tuple[str, int], int], source_records: int, kills: int
) -> SinkCount:
    """Compare every committed record with the independent count."""
    seen: Counter[tuple[str, int]] = Counter()
    wrong = 0
    committed = read_values(kafka, topic)
    for value in committed:
        row = json.loads(value)
        start = int(datetime.fromisoformat(str(row["window_start"]).replace("Z", "+00:00")).timestamp())
        key = (str(row["ip"]), start)
        seen[key] += 1
        wrong += int(row["count"]) != expected.get(key)
    written = len(read_values(kafka, topic, "read_uncommitted"))
    return SinkCount(
        sink=topic,
        source_records=source_records,
        sink_committed=len(committed),
        lost=sum(key not in seen for key in expected),
        duplicated=sum(times - 1 for times in seen.values()),
        wrong=wrong,
        aborted_hidden=written - len(committed),
        kills=kills,
    )
