"""Plays the demo on a stack of its own: Kafka, Airflow, a growing log, two streams, four kills, and a count."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_ckpt.demo.access_log import AccessLog
from airflow_ckpt.demo.outcome import Outcome, count
from airflow_ckpt.demo.stage import DAG, Stage
from airflow_ckpt.exceptions import StackError
from airflow_ckpt.kafka.offsets import admin_client
from airflow_ckpt.local import stack
from airflow_ckpt.local.airflow import AirflowStandalone
from airflow_ckpt.local.airflow_api import AirflowApi

Say = Callable[[str], None]

LOG_SECONDS = 50.0
LINES_PER_SECOND = 300
PARTITIONS = 2
LOOK_SECONDS = 2.0
DEADLINE_SECONDS = 600.0
DRAIN_SECONDS = 120.0


def play(home: Path, say: Say, progress: Say) -> dict[str, Any]:
    """The figures of both sinks, and whether the promise was kept."""
    if stack.project_dags() is None:
        raise StackError("the demo needs the example DAGs: run it from a checkout of the project (`make demo`)")
    begun = time.monotonic()
    summary = stack.up(home, report=say)
    # Its own client says only what is an error: the screen belongs to the demo.
    kafka = {"bootstrap.servers": summary["kafka"]["bootstrap"], "log_level": 3}
    airflow: AirflowStandalone = stack._airflow(home)
    stages = [
        Stage("demo_ours", "exactly_once", home, "demo_log_ours", "demo_counts_ours"),
        Stage("demo_spark", "at_least_once", home, "demo_log_spark", "demo_counts_spark"),
    ]
    admin = admin_client(kafka)
    _create_topics(admin, [topic for stage in stages for topic in (stage.source, stage.sink)])
    log = AccessLog(kafka, tuple(stage.source for stage in stages), LOG_SECONDS, LINES_PER_SECOND)
    say(f"writing an access log: {LINES_PER_SECOND} lines a second for {LOG_SECONDS:.0f} s, to two topics")
    log.start()
    try:
        api = airflow.api
        api.wait_for_dag(DAG)
        for stage in stages:
            stage.trigger(api)
            say(f"triggered {DAG} for {stage.title} through Airflow's REST API: {stage.run_id}")
        _watch(stages, log, api, admin, say, progress)
        outcomes = _finish(stages, log, kafka, admin, say)
    finally:
        log.stop()
    ours, control = outcomes
    run_state = stages[0].state(api)
    passed, reason = judge(ours, control, run_state)
    return {
        "result": "PASS" if passed else "FAIL",
        "reason": reason,
        "ours": ours.as_dict(),
        "control": control.as_dict(),
        "run_state": run_state,
        "report": stages[0].report(),
        "seconds": round(time.monotonic() - begun, 1),
        "batches": {
            stage.title: {"batches": stage.batches(), "kills": [hit["time"] for hit in stage.hits]} for stage in stages
        },
    }


def judge(ours: Outcome, control: Outcome, run_state: str) -> tuple[bool, str]:
    """A pass needs both: our sink is right, and the control shows that the faults were real."""
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


def _watch(stages: list[Stage], log: AccessLog, api: AirflowApi, admin: Any, say: Say, progress: Say) -> None:
    """Show how it goes until both DAG runs are over."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not all(stage.over(api) for stage in stages):
        if time.monotonic() > deadline:
            raise StackError(f"the DAG runs are not over after {DEADLINE_SECONDS:.0f} s: see Airflow's UI")
        if log.error:
            raise StackError(f"the access log cannot be written: {log.error}")
        for stage in stages:
            for line in stage.look():
                say(line)
        progress("\n".join([f"log: {log.lines:,} lines", *(stage.line(api, admin) for stage in stages)]))
        time.sleep(LOOK_SECONDS)
    progress("")


def _finish(stages: list[Stage], log: AccessLog, kafka: dict[str, Any], admin: Any, say: Say) -> list[Outcome]:
    """Let both streams take what is left of the log, stop them, and count."""
    log.join(LOG_SECONDS)
    say("waiting until both streams have taken the whole log")
    for stage in stages:
        _drain(stage, admin)
        stage.look()
        stage.request_stop()
    say("counting the sinks with a plain consumer")
    return [count(kafka, stage.sink, log.expected, log.lines, len(stage.hits)) for stage in stages]


def _drain(stage: Stage, admin: Any) -> None:
    """Wait until everything is committed and no batch follows: the last windows close one batch later."""
    deadline, calm, last = time.monotonic() + DRAIN_SECONDS, 0, None
    while calm < 3:
        if time.monotonic() > deadline:
            raise StackError(f"{stage.title} did not take the whole log: see {stage.files.root}")
        seen = stage.committed()
        done = not stage.lag(admin, seen) and seen.in_doubt is None
        calm = calm + 1 if done and seen.committed == last else 0
        last = seen.committed
        time.sleep(LOOK_SECONDS)
