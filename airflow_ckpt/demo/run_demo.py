"""Runs the demo on its own stack: Kafka, Airflow, a growing log, two streams, four kills, and a count."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from airflow_ckpt.demo.access_log import AccessLog
from airflow_ckpt.demo.demo_stream import DAG, DemoStream
from airflow_ckpt.demo.sink_count import SinkCount, count_sink
from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local import stack
from airflow_ckpt.local.airflow.rest_api import AirflowApi
from airflow_ckpt.local.announcements import Announce
from ckpt_stream.kafka.admin_client import admin_client
from ckpt_stream.protocol.deadline import Deadline

LOG_SECONDS = 50.0
LINES_PER_SECOND = 300
PARTITIONS = 2
LOOK_SECONDS = 2.0
DEADLINE_SECONDS = 600.0
DRAIN_SECONDS = 120.0


def run_demo(home: Path, announce: Announce, progress: Announce) -> dict[str, Any]:
    """Run the demo; returns the figures of both sinks and the result. `progress` shows lines that are updated in place."""
    if stack.project_dags() is None:
        raise StackError("the demo needs the example DAGs: run it from a checkout of the project (`make demo`)")
    begun = time.monotonic()
    summary = stack.up(home, announce=announce)
    # The demo's own client prints errors only.
    kafka = {"bootstrap.servers": summary["kafka"]["bootstrap"], "log_level": 3}
    streams = [
        DemoStream("demo_ours", "exactly_once", home, "demo_log_ours", "demo_counts_ours"),
        DemoStream("demo_spark", "at_least_once", home, "demo_log_spark", "demo_counts_spark"),
    ]
    admin = admin_client(kafka)
    _create_topics(admin, [topic for stream in streams for topic in (stream.source, stream.sink)])
    log = AccessLog(kafka, tuple(stream.source for stream in streams), LOG_SECONDS, LINES_PER_SECOND)
    announce(f"writing an access log: {LINES_PER_SECOND} lines a second for {LOG_SECONDS:.0f} s, to two topics")
    log.start()
    try:
        api = stack.airflow_of(home).api
        api.wait_for_dag(DAG)
        for stream in streams:
            stream.trigger(api)
            announce(f"triggered {DAG} for {stream.title} through Airflow's REST API: {stream.run_id}")
        _watch(streams, log, api, admin, announce, progress)
        counts = _finish(streams, log, kafka, admin, announce)
    finally:
        log.stop()
    ours, control = counts
    run_state = streams[0].state(api)
    passed, reason = judge(ours, control, run_state)
    return {
        "result": "PASS" if passed else "FAIL",
        "reason": reason,
        "ours": ours.as_dict(),
        "control": control.as_dict(),
        "run_state": run_state,
        "report": streams[0].report(),
        "seconds": round(time.monotonic() - begun, 1),
        "batches": {
            stream.title: {"batches": stream.batches(), "kills": [hit["time"] for hit in stream.hits]}
            for stream in streams
        },
    }


def judge(ours: SinkCount, control: SinkCount, run_state: str) -> tuple[bool, str]:
    """Pass only if this sink is correct and Spark's own sink is not, which shows that the kills had an effect."""
    if ours.kills < 2 or control.kills < 2:
        return False, f"the drivers were killed {ours.kills} and {control.kills} times instead of twice each"
    if ours.lost or ours.duplicated or ours.wrong:
        return False, f"{ours.lost} lost, {ours.duplicated} duplicated, {ours.wrong} wrong in this sink"
    if run_state != "success":
        return (
            False,
            f"the DAG run of this sink ended {run_state}; its verification or a resume failed, see the UI's log",
        )
    if not control.duplicated:
        return False, "Spark's own sink doubled nothing under the same kills, so the demo proves nothing"
    return True, f"nothing lost, nothing doubled; under the same kills Spark's own sink doubled {control.duplicated}"


def _create_topics(admin: Any, names: list[str]) -> None:
    from confluent_kafka.admin import NewTopic

    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        future.result(30)


def _watch(
    streams: list[DemoStream], log: AccessLog, api: AirflowApi, admin: Any, announce: Announce, progress: Announce
) -> None:
    """Show the progress until both DAG runs are over."""
    deadline = Deadline.after(DEADLINE_SECONDS)
    while not all(stream.is_over(api) for stream in streams):
        if deadline.passed:
            raise StackError(f"the DAG runs are not over after {DEADLINE_SECONDS:.0f} s: see Airflow's UI")
        log.refuse_error()
        for stream in streams:
            for line in stream.new_kills():
                announce(line)
        progress("\n".join([f"log: {log.lines:,} lines", *(stream.progress_line(api, admin) for stream in streams)]))
        time.sleep(LOOK_SECONDS)
    progress("")


def _finish(
    streams: list[DemoStream], log: AccessLog, kafka: dict[str, Any], admin: Any, announce: Announce
) -> list[SinkCount]:
    """Wait until both streams have read the whole log, stop them, and count their sinks."""
    log.join(LOG_SECONDS)
    log.refuse_error()
    announce("waiting until both streams have read the whole log")
    for stream in streams:
        _drain(stream, admin)
        stream.new_kills()
        stream.request_stop()
    announce("counting the sinks with a plain consumer")
    return [count_sink(kafka, stream.sink, log.expected, log.lines, len(stream.hits)) for stream in streams]


def _drain(stream: DemoStream, admin: Any) -> None:
    """Wait until all input is committed and no further batch follows, because the last windows close one batch later."""
    deadline, unchanged, last = Deadline.after(DRAIN_SECONDS), 0, None
    while unchanged < 3:
        if deadline.passed:
            raise StackError(f"{stream.title} did not read the whole log in time: see {stream.files.root}")
        seen = stream.committed()
        done = not stream.lag(admin, seen) and seen.in_doubt is None
        unchanged = unchanged + 1 if done and seen.committed == last else 0
        last = seen.committed
        time.sleep(LOOK_SECONDS)
