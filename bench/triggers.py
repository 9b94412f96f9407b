"""A thousand checkpoints watched by one event loop: what it costs, and whether a look at a checkpoint ever blocks the loop."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_ckpt.local.announcements import Announce
from airflow_ckpt.local.kafka.cluster import KafkaCluster
from bench.broker_and_spark import new_topic
from ckpt_stream.machine.process_identity import this_driver
from ckpt_stream.protocol.run_files import record_files, run_record
from ckpt_stream.protocol.run_files.run_record import RunRecord

STREAMS = 1000
POLL_SECONDS = 10.0
WATCH_SECONDS = 40.0
#: As Airflow's triggerer does, which warns when its loop was blocked for 0.2 s.
TICK_SECONDS = 0.05


def write_checkpoint(folder: Path, source: str) -> None:
    """A checkpoint of 20 batches with the run record of a driver that lives (this process)."""
    offsets = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":1767225600000,"conf":{{}}}}\n{{"{source}":{{"0":100}}}}'
    for log, text in (("offsets", offsets), ("commits", 'v1\n{"nextBatchWatermarkMs":0}')):
        (folder / log).mkdir(parents=True)
        for batch in range(20):
            (folder / log / str(batch)).write_text(text)
    run = RunRecord(run=run_record.run_name(datetime.now(UTC), "bench"), stream=folder.name, token="bench")  # noqa: S106
    run.driver = this_driver(0)
    run.heartbeat_seconds = 3600.0
    run.enter(run_record.STARTING)
    run.enter(run_record.RUNNING)
    run.heartbeat = record_files.now()
    (folder / "_ckpt" / "runs").mkdir(parents=True)
    (folder / run.path).write_text(run.to_json())


def watch(cluster: KafkaCluster, announce: Announce, streams: int = STREAMS) -> dict[str, Any]:
    """CPU share of the process and the longest time the loop was blocked, while every stream is looked at."""
    source = new_topic(cluster, "source", 1)
    with tempfile.TemporaryDirectory(prefix="ckpt-bench-") as folder:
        for number in range(streams):
            write_checkpoint(Path(folder) / f"stream-{number}", source)
        announce(f"watching {streams} checkpoints, each every {POLL_SECONDS:g} s")
        return asyncio.run(_watch(cluster, Path(folder), source, streams))


async def _watch(cluster: KafkaCluster, folder: Path, source: str, streams: int) -> dict[str, Any]:
    from airflow.sdk import Connection

    from airflow_ckpt.hooks.stream import StreamHook
    from airflow_ckpt.streams.stream import Stream
    from airflow_ckpt.triggers import progress

    connections = {
        "kafka_default": Connection(
            conn_id="kafka_default", conn_type="kafka", extra=json.dumps(cluster.client_config())
        ),
        "spark_default": Connection(conn_id="spark_default", conn_type="spark", host="local[2]"),
    }
    looks = 0

    async def connect(self: StreamHook) -> Any:
        return self.control(connections)

    StreamHook.aget_conn = connect  # type: ignore[method-assign]
    judge = progress.Goal.judge

    def counted(self: Any, status: Any, now: Any) -> Any:
        nonlocal looks
        looks += 1
        return judge(self, status, now)

    progress.Goal.judge = counted  # type: ignore[method-assign]
    triggers = [
        progress.CheckpointProgressTrigger(
            Stream(
                name=f"stream-{n}", application="copy_topic.py", checkpoint=str(folder / f"stream-{n}"), source=source,
                sink="sink", stall_after="1 day",
            ).as_dict(),
            {"batch": 10_000},
            poll_interval=POLL_SECONDS,
        )
        for n in range(streams)
    ]  # fmt: skip

    async def follow(trigger: Any) -> None:
        async for event in trigger.run():
            raise RuntimeError(f"a trigger fired: {event.payload['reason']}")

    tasks = [asyncio.create_task(follow(trigger)) for trigger in triggers]
    await asyncio.sleep(POLL_SECONDS * 1.5)
    looks, blocked = 0, 0.0
    cpu, begun = time.process_time(), time.perf_counter()
    while time.perf_counter() - begun < WATCH_SECONDS:
        asked = time.perf_counter()
        await asyncio.sleep(TICK_SECONDS)
        blocked = max(blocked, time.perf_counter() - asked - TICK_SECONDS)
    seconds = time.perf_counter() - begun
    failed = [task.exception() for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    if failed:
        raise RuntimeError(f"{len(failed)} triggers ended: {failed[0]}")
    return {
        "streams": streams,
        "looks_per_second": round(looks / seconds, 1),
        "cpu_share": round((time.process_time() - cpu) / seconds, 3),
        "longest_block_seconds": round(blocked, 3),
    }
