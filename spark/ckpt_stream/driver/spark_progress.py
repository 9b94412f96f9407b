"""What Spark reports of a query: whether it waits for input, how far it is behind, and how many records were malformed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ckpt_stream.spark.record_rules import MALFORMED


def waits_for_input(status: Mapping[str, Any]) -> bool:
    """Whether Spark has looked for input and found none. False while Spark looks, and before it has looked once."""
    return str(status["message"]).startswith("Waiting for") and not status["isDataAvailable"]


def lag_of(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """How many offsets were unread when Spark planned a batch; None if Spark does not report it."""
    unread = 0
    for source in sources:
        latest, end = source.get("latestOffset"), source.get("endOffset")
        if not isinstance(latest, dict) or not isinstance(end, dict):
            return None
        for topic, partitions in latest.items():
            read = end.get(topic, {})
            unread += sum(max(0, int(offset) - int(read.get(p, offset))) for p, offset in partitions.items())
    return unread


def batch_report(progress: Mapping[str, Any]) -> dict[str, Any]:
    """The part of Spark's progress report of a batch that the run record keeps."""
    observed = progress.get("observedMetrics", {})
    return {
        "input_rows": progress.get("numInputRows"),
        "durations_ms": progress.get("durationMs", {}),
        "lag": lag_of(progress.get("sources", ())),
        "malformed": sum(int(v.get("malformed") or 0) for k, v in observed.items() if k.startswith(MALFORMED)),
    }
