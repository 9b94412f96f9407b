"""Streams on a real YARN in cluster mode, with their checkpoint on a real HDFS, through the provider's own hook."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.hooks.stream import StreamHook
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.supervision.control import StreamControl
from tests.support.hdfs import HdfsUnderTest
from tests.support.kafka_io import produce, read_all
from tests.support.waiting import wait_for
from tests.support.yarn import YarnUnderTest

# The first run downloads Hadoop, which takes minutes.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

APPLICATION = Path(__file__).parents[2] / "spark" / "copy_topic.py"
START_SECONDS = 180


@pytest.fixture
def on_yarn(
    yarn: YarnUnderTest,
    hdfs: HdfsUnderTest,
    kafka: Any,
    topics: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stream]:
    """A stream in cluster mode. Airflow's connections are given as environment variables, as in any deployment."""
    import pyspark

    from airflow_ckpt.local.jars.stack_jars import spark_kafka_jars

    name = f"yarn-{uuid.uuid4().hex[:8]}"
    home = Path(str(pyspark.__file__)).parent
    extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": yarn.rm_url}
    spark = {"conn_type": "spark", "host": "yarn", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_YARN", json.dumps(spark))
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_TEST", json.dumps({"conn_type": "kafka", "extra": kafka.client_config()}))
    monkeypatch.setenv("AIRFLOW__AIRFLOW_CKPT__WORK_FOLDER", str(tmp_path / "work"))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf_dir))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    stream = Stream(
        name=name,
        application=str(APPLICATION),
        checkpoint=f"{hdfs.uri}/checkpoints/{name}",
        webhdfs=f"http://{hdfs.webhdfs['user']}@{hdfs.webhdfs['host']}:{hdfs.webhdfs['port']}",
        source=topics("source"),
        sink=topics("sink"),
        kafka_conn_id="kafka_test",
        spark_conn_id="spark_yarn",
        start="earliest",
        trigger_interval="500 ms",
        heartbeat="1 s",
        jars=tuple(f"local:{jar}" for jar in sorted(spark_kafka_jars().glob("*.jar"))),
        spark_conf={
            "spark.yarn.jars": f"local:{home}/jars/*",
            "spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable,
            "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
            "spark.executor.instances": "1",
            "spark.driver.memory": "700m",
            "spark.executor.memory": "600m",
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    yield stream
    control = attach(stream)
    if control.status().driver:
        control.kill()


def attach(stream: Stream) -> StreamControl:
    """A control as a new task on another worker would make it: from the declaration alone."""
    return StreamHook(stream, by="a test").get_conn()


def values(kafka: Any, stream: Stream) -> list[str]:
    return sorted((r.value or b"").decode() for r in read_all(kafka.client_config(), stream.sink))


def state(stream: Stream) -> str:
    return attach(stream).status().state


def test_a_stream_on_yarn_is_submitted_found_again_killed_and_resumed(
    on_yarn: Stream, yarn: YarnUnderTest, kafka: Any
) -> None:
    produce(kafka.client_config(), on_yarn.source[0], [("k", "a"), ("k", "b")])
    attach(on_yarn).submit()
    wait_for(lambda: values(kafka, on_yarn) == ["a", "b"], "the records", seconds=START_SECONDS)
    found = attach(on_yarn).status()
    assert found.state in ("RUNNING", "IDLE")
    assert found.driver is not None
    application = str(found.driver["id"])
    assert application.startswith("application_")
    assert yarn.get(f"apps/{application}")["app"]["state"] == "RUNNING"

    # A second submit attaches. A ResourceManager that comes back knows the driver, and so do we.
    assert attach(on_yarn).submit().token == found.token
    yarn.restart_rm()
    assert state(on_yarn) in ("RUNNING", "IDLE")
    assert len(yarn.get("apps")["apps"]["app"]) >= 1

    # Killed from outside: LOST, never success; a resume goes on at the checkpoint.
    attach(on_yarn).runner.kill(attach(on_yarn).runner.find(str(found.token)))  # type: ignore[arg-type]
    lost = wait_for(lambda: (s := attach(on_yarn).status()).state == "LOST" and s, "LOST", seconds=60)
    assert "KILLED" in lost.reason
    produce(kafka.client_config(), on_yarn.source[0], [("k", "c")])
    control = attach(on_yarn)
    control.resume(control.look_before_start())
    wait_for(lambda: values(kafka, on_yarn) == ["a", "b", "c"], "the new record", seconds=START_SECONDS)

    # Killed by us, from a control that has not started it: stopped on request.
    attach(on_yarn).kill()
    wait_for(lambda: state(on_yarn) == "STOPPED", "STOPPED", seconds=60)


def test_an_application_that_the_resourcemanager_has_forgotten_is_lost_and_not_finished(
    on_yarn: Stream, yarn: YarnUnderTest, kafka: Any
) -> None:
    produce(kafka.client_config(), on_yarn.source[0], [("k", "a")])
    attach(on_yarn).submit()
    wait_for(lambda: values(kafka, on_yarn) == ["a"], "the record", seconds=START_SECONDS)
    yarn.restart_rm(forget=True)
    lost = wait_for(lambda: (s := attach(on_yarn).status()).state == "LOST" and s, "LOST", seconds=60)
    assert "has not recorded its end" in lost.reason
