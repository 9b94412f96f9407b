"""The declaration of a stream: immutable, carried as JSON, and refused when it cannot work."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest

from airflow_ckpt.exceptions import BadStream
from airflow_ckpt.streams.restart_strategies import ExponentialDelay, FixedDelay, NoRestart
from airflow_ckpt.streams.stream import Stream
from ckpt_stream.protocol.settings.config import from_json
from tests.airflow_ckpt.supervision.samples import a_stream

pytestmark = pytest.mark.unit

FULL: dict[str, Any] = {
    "name": "orders",
    "application": "s3a://apps/orders.py",
    "checkpoint": "hdfs://namenode/orders",
    "sink": "orders_out",
    "source": ("orders_in", "more_orders"),
    "kafka_conn_id": "kafka_prod",
    "spark_conn_id": "spark_prod",
    "restart": FixedDelay(3, timedelta(seconds=10)),
    "trigger_interval": timedelta(seconds=5),
    "drain": True,
    "stop_at": {"orders_in": {"0": 100}},
    "max_offsets_per_batch": 1000,
    "min_pause": timedelta(milliseconds=500),
    "batch_timeout": timedelta(minutes=1),
    "lanes": 4,
    "transaction_timeout": timedelta(seconds=30),
    "start": "explicit",
    "start_offsets": {"orders_in": {"0": -2}},
    "offset_mirror": "periodic",
    "offset_mirror_period": timedelta(seconds=7),
    "malformed": "dead_letter",
    "dead_letter_topic": "orders_dead",
    "output_mode": "update",
    "audit": "record",
    "sink_id": "orders-v2",
    "group": "orders-group",
    "ledger_history": 50,
    "include_headers": True,
    "source_options": {"minPartitions": "4"},
    "application_version": "1.2",
    "heartbeat": timedelta(seconds=2),
    "options": {"slow": [1, {"a": None}]},
    "runner": "yarn",
    "spark_conf": {"spark.executor.memory": "2g"},
    "jars": ("a.jar", "b.jar"),
    "packages": ("g:a:1",),
    "py_files": ("lib.zip",),
    "files": ("x.txt",),
    "checkpoint_conn_id": "hdfs_prod",
    "webhdfs": "http://namenode:9870",
    "storage_options": {"user": "spark"},
    "stall_after": timedelta(minutes=3),
    "start_timeout": timedelta(minutes=4),
}


def through_json(stream: Stream) -> Stream:
    return Stream.from_dict(json.loads(json.dumps(stream.as_dict())))


# --- a value that travels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {k: v for k, v in FULL.items() if k not in ("name", "sink")}])
def test_a_stream_is_the_same_after_a_round_trip_through_json(settings: dict[str, Any]) -> None:
    stream = a_stream(**settings)
    assert through_json(stream) == stream


@pytest.mark.parametrize("name", FULL)
def test_no_setting_gets_lost_on_the_way(name: str) -> None:
    assert getattr(through_json(Stream(**FULL)), name) == getattr(Stream(**FULL), name)


def test_partitions_may_be_numbers_and_are_the_same_after_the_round_trip() -> None:
    stream = a_stream(stop_at={"orders_in": {0: 100}}, start="explicit", start_offsets={"orders_in": {0: 5}})
    assert through_json(stream) == stream
    assert through_json(stream).config.stop_at == {"orders_in": {"0": 100}}


def test_templates_are_the_same_after_the_round_trip() -> None:
    stream = a_stream(source="{{ params.topic }}", lanes="{{ params.lanes }}", trigger_interval="{{ params.interval }}")
    assert stream.has_templates
    assert through_json(stream) == stream


def test_a_stream_cannot_be_changed_and_a_copy_can() -> None:
    stream = a_stream()
    with pytest.raises(FrozenInstanceError):
        stream.sink = "other"  # type: ignore[misc]
    assert (stream.but(sink="other").sink, stream.sink) == ("other", "orders_out")


def test_a_copy_is_checked_like_the_stream_itself() -> None:
    with pytest.raises(BadStream):
        a_stream().but(sink="orders_in")


def test_what_the_caller_changes_afterwards_does_not_change_the_stream() -> None:
    conf = {"spark.executor.memory": "2g"}
    stream = a_stream(spark_conf=conf)
    conf["spark.executor.memory"] = "1t"
    assert stream.spark_conf == {"spark.executor.memory": "2g"}


def test_equal_streams_are_equal_in_a_set_and_others_are_not() -> None:
    assert len({a_stream(lanes=2), a_stream(lanes=2), a_stream(lanes=3)}) == 2
    assert hash(Stream(**FULL)) == hash(through_json(Stream(**FULL)))


def test_times_may_be_written_in_three_ways() -> None:
    written = [a_stream(trigger_interval=value) for value in (timedelta(seconds=5), 5, "5 seconds")]
    assert written[0] == written[1] == written[2]


def test_settings_are_named_so_that_a_new_one_cannot_change_the_meaning_of_a_place() -> None:
    with pytest.raises(TypeError):
        Stream("orders", "orders.py", "file:///c", "orders_out", "orders_in")  # type: ignore[misc]


def test_one_topic_may_be_written_without_a_list() -> None:
    assert a_stream(source="orders_in") == a_stream(source=["orders_in"]) == a_stream(source=("orders_in",))


def test_a_strategy_may_be_given_as_json_values() -> None:
    assert a_stream(restart={"type": "none"}).restart == NoRestart()
    assert a_stream().restart == ExponentialDelay()


# --- what cannot work --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"name": ""}, r"Stream\(name=\.\.\.\) must be a text"),
        ({"stop_at": "10"}, r"Stream\(stop_at=\.\.\.\) must be a mapping, not of type str"),
        ({"start_offsets": [7]}, r"Stream\(start_offsets=\.\.\.\) must be a mapping"),
        ({"options": "fast"}, r"Stream\(options=\.\.\.\) must be a mapping"),
        ({"checkpoint": None}, r"Stream\(checkpoint=\.\.\.\) must be a text"),
        ({"kafka_conn_id": ""}, r"kafka_conn_id"),
        ({"name": "a b"}, "letters, digits"),
        ({"source": (), "source_pattern": None}, r"\bsource\b.*\bsource_pattern\b"),
        ({"source_pattern": "x.*"}, r"\bsource\b.*\bsource_pattern\b"),
        ({"source": (), "source_pattern": "orders_.*"}, r"'orders_\.\*'.*orders_out"),
        ({"sink": "orders_in"}, "'orders_in'"),
        ({"malformed": "dead_letter"}, "dead_letter_topic"),
        ({"start": "timestamp"}, "start_timestamp_ms"),
        ({"start": "explicit"}, "start_offsets"),
        ({"start": "yesterday"}, "yesterday.*group, earliest"),
        ({"stop_at": {"other": {"0": 1}}}, r"stop_at.*\bother\b"),
        ({"lanes": 0}, r"lanes=0\b.*\b1\b"),
        ({"lanes": "4"}, "lanes='4'"),
        ({"guarantee": "maybe"}, "exactly_once, at_least_once"),
        ({"runner": "mesos"}, "mesos.*auto, process, yarn, kubernetes"),
        ({"restart": "always"}, r"NoRestart\(\), FixedDelay\(\)"),
        ({"start_timeout": None}, "start_timeout=None"),
        ({"trigger_interval": None}, "trigger_interval=None"),
    ],
)
def test_a_bad_combination_is_refused_at_once_with_what_to_write(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BadStream, match=words):
        a_stream(**settings)


@pytest.mark.parametrize("settings", [{"trigger_interval": "soon"}, {"stall_after": -1}, {"heartbeat": True}])
def test_a_length_of_time_that_is_none_is_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(BadStream, match=next(iter(settings))):
        a_stream(**settings)


def test_what_can_be_checked_is_checked_although_something_else_is_a_template() -> None:
    with pytest.raises(BadStream, match=r"mesos.*auto, process"):
        a_stream(source="{{ topic }}", runner="mesos")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("spark_conf", {"spark.ssl.keyPassword": "hunter2"}),
        ("storage_options", {"secret": "hunter2"}),
        ("source_options", {"kafka.sasl.jaas.config": "hunter2"}),
        ("options", {"api_token": "hunter2"}),
        ("storage_options", {"client_kwargs": {"aws_secret_access_key": "hunter2"}}),
        ("options", {"sinks": [{"db": {"password": "hunter2"}}]}),
    ],
)
def test_a_secret_in_the_declaration_is_refused_with_where_it_belongs_and_not_repeated(
    name: str, values: dict[str, str]
) -> None:
    with pytest.raises(BadStream, match=f"{name}.*holds secrets.*connection") as caught:
        a_stream(**{name: values})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "where"),
    [
        ("checkpoint", "s3a://KEY:hunter2@bucket/x", "checkpoint"),
        ("webhdfs", "http://user:hunter2@nn:9870", "webhdfs"),
        ("options", {"db": {"jdbc_url": "jdbc:postgresql://u:hunter2@db/x"}}, "options.db.jdbc_url"),
        ("env", {"DATABASE_URL": "postgresql://u:hunter2@db/{{ ds }}"}, "env.DATABASE_URL"),
        ("jars", ("https://u:hunter2@repo/x.jar",), "jars"),
        (
            "spark_conf",
            {"spark.driver.extraJavaOptions": "-Xmx1g -Djavax.net.ssl.trustStorePassword=hunter2"},
            "spark_conf.spark.driver.extraJavaOptions",
        ),
    ],
)
def test_a_secret_in_a_value_is_refused_with_where_it_is_and_not_repeated(name: str, value: Any, where: str) -> None:
    with pytest.raises(BadStream, match=f"in {where}\\).*connection") as caught:
        a_stream(**{name: value})
    assert "hunter2" not in str(caught.value)


def test_the_name_of_a_kubernetes_secret_is_none() -> None:
    a_stream(
        spark_conf={
            "spark.kubernetes.driver.secretKeyRef.PW": "db:password",
            "spark.kubernetes.driver.secrets.db": "/pw",
        }
    )


def test_a_setting_that_a_stream_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(BadStream, match="chekpoint"):
        Stream.from_dict({**a_stream().as_dict(), "chekpoint": "x"})


# --- what the driver gets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 1200),
        ({"trigger_interval": 1800}, 3600),
        ({"batch_timeout": 30}, 60),
        ({"trigger_interval": 5, "batch_timeout": 30}, 60),
        ({"trigger_interval": 1800, "stall_after": "90 seconds"}, 90),
    ],
)
def test_the_stall_window_is_twice_the_longer_of_interval_and_timeout_unless_given(
    settings: dict[str, Any], seconds: float
) -> None:
    assert a_stream(**settings).stall_window == timedelta(seconds=seconds)


def test_the_drivers_document_is_read_by_the_driver_and_holds_no_secrets() -> None:
    kafka = {"bootstrap.servers": "k:9092", "sasl.username": "u", "sasl.password": "hunter2", "ssl.key.pem": "hunter2"}
    text = json.dumps(Stream(**FULL).document(kafka, "t1"))
    assert "hunter2" not in text
    config = from_json(text)
    assert dict(config.kafka) == {"bootstrap.servers": "k:9092", "sasl.username": "u"}
    assert (config.token, config.sink_id, config.lanes) == ("t1", "orders-v2", 4)
    assert (config.trigger_interval, config.min_pause, config.heartbeat) == (5.0, 0.5, 2.0)
    assert config.options == {"slow": [1, {"a": None}]}
    assert config.stop_at == {"orders_in": {"0": 100}}


def test_the_document_names_nothing_that_only_airflow_needs() -> None:
    document = Stream(**FULL).document({"bootstrap.servers": "k:9092"}, "t1")
    assert not {"restart", "application", "kafka_conn_id", "spark_conf", "storage_options", "stall_after"} & set(
        document
    )


def test_a_connection_without_brokers_is_named_before_anything_is_started() -> None:
    with pytest.raises(BadStream, match=r"bootstrap\.servers"):
        a_stream().document({}, "t1")


@pytest.mark.parametrize("orders", ["{", '{"point": "after_lunch"}', '{"point": "mid_produce", "kill": "both"}'])
def test_crash_orders_that_cannot_be_followed_are_refused_before_a_driver_dies_of_them(orders: str) -> None:
    assert a_stream(env={"CKPT_CRASH": "{{ params.crash }}"})
    with pytest.raises(BadStream, match="CKPT_CRASH"):
        a_stream(env={"CKPT_CRASH": orders})
