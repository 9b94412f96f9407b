"""A stream's metrics, sent with Airflow's own (StatsD or OpenTelemetry)."""

from __future__ import annotations

from airflow_ckpt.streams.status import BROKEN, StreamStatus

PREFIX = "airflow_ckpt"


def report(status: StreamStatus) -> None:
    """Send the gauges of a stream: lag, age of the last commit, committed batch, and whether the stream is broken."""
    from airflow.providers.common.compat.sdk import Stats

    tags = {"stream": status.stream}
    gauges = {
        "lag_records": status.lag_records,
        "lag_seconds": status.lag_seconds,
        "last_commit_age_seconds": status.age_seconds,
        "committed_batch": status.batch,
        "broken": int(status.state in BROKEN),
    }
    for name, value in gauges.items():
        if value is not None:
            Stats.gauge(f"{PREFIX}.{name}", value, tags=tags)


def count(event: str, stream: str) -> None:
    """Count an event of a stream, such as `resumed` or `violated`."""
    from airflow.providers.common.compat.sdk import Stats

    Stats.incr(f"{PREFIX}.{event}", tags={"stream": stream})
