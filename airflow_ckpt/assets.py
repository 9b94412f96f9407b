"""A stream as an Airflow asset: DAGs can be scheduled on its events."""

from __future__ import annotations

from typing import Any

from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.streams.templates import is_template


def stream_asset(stream: Stream) -> Any:
    """The stream's asset. Its events carry batch, offsets and, after a verification, the verdict."""
    from airflow.providers.common.compat.sdk import Asset

    return Asset(name=f"stream:{stream.name}", uri=f"ckpt-stream://{stream.name}/{stream.sink}", group="ckpt-stream")


def has_asset(stream: Stream) -> bool:
    """Whether the stream can have an asset: assets are created when the DAG is parsed, so its name must not be a template."""
    return not (is_template(stream.name) or is_template(stream.sink))
