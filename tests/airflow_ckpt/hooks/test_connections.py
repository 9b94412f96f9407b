"""Airflow's connections as values: the rules of the Spark provider, and an error for what cannot be used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Connection
from airflow.sdk.bases.hook import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_ckpt.exceptions import BadConnection
from airflow_ckpt.hooks.connections import (
    Connections,
    SparkTarget,
    kafka_from_connection,
    names_of,
    spark_target,
    storage_options,
)
from airflow_ckpt.hooks.settings import read_settings
from airflow_ckpt.hooks.stream import StreamHook, make_runner
from airflow_ckpt.runners.process import ProcessRunner
from airflow_ckpt.runners.yarn import YarnRunner
from tests.airflow_ckpt.supervision.samples import a_stream

pytestmark = pytest.mark.unit

KAFKA = '{"bootstrap.servers": "k:9092", "sasl.username": "u", "sasl.password": "hunter2"}'


def connection(conn_type: str, **values: Any) -> Connection:
    return Connection(conn_id="it", conn_type=conn_type, **values)


# --- Kafka -------------------------------------------------------------------------------------------------------------


def test_the_kafka_settings_are_the_whole_extra_field() -> None:
    found = kafka_from_connection(connection("kafka", extra=KAFKA), "it")
    assert found == {"bootstrap.servers": "k:9092", "sasl.username": "u", "sasl.password": "hunter2"}


@pytest.mark.parametrize(
    ("conn_type", "extra", "words"),
    [
        ("http", KAFKA, "of type 'http'; a stream needs type 'kafka'"),
        ("kafka", "{}", "lacks 'bootstrap.servers'"),
        ("kafka", '{"bootstrap.servers": ""}', "lacks 'bootstrap.servers'"),
    ],
)
def test_a_kafka_connection_that_cannot_work_is_refused_with_its_name(conn_type: str, extra: str, words: str) -> None:
    with pytest.raises(BadConnection, match=f"'it'.*{words}") as caught:
        kafka_from_connection(connection(conn_type, extra=extra), "it")
    assert "hunter2" not in str(caught.value)


# --- Spark -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "master", "runner"),
    [
        ({"conn_type": "spark", "host": "local[*]"}, "local[*]", "process"),
        ({"conn_type": "spark", "host": "yarn"}, "yarn", "process"),
        ({"conn_type": "spark", "host": "yarn", "extra": '{"deploy-mode": "cluster"}'}, "yarn", "yarn"),
        ({"conn_type": "yarn", "host": "", "extra": '{"deploy-mode": "cluster"}'}, "yarn", "yarn"),
        ({"conn_type": "yarn", "host": "somewhere", "port": 8032}, "yarn", "process"),
        ({"conn_type": "spark", "host": "spark://m", "port": 7077}, "spark://m:7077", "process"),
        ({"conn_type": "spark", "host": "m", "port": 7077}, "spark://m:7077", "process"),
        (
            {"conn_type": "spark", "host": "k8s://https://m:6443", "extra": '{"deploy-mode": "cluster"}'},
            "k8s://https://m:6443",
            "kubernetes",
        ),
        ({"conn_type": "k8s", "host": "https://m", "port": 6443, "extra": '{"deploy-mode": "client"}'},
         "k8s://https://m:6443", "process"),
    ],
)  # fmt: skip
def test_the_master_and_the_runner_follow_from_the_connection(values: dict[str, Any], master: str, runner: str) -> None:
    found = spark_target(connection(**values), "it")
    assert (found.master, found.runner) == (master, runner)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"conn_type": "http", "host": "x"}, "of type 'http'; a stream needs type 'spark'"),
        ({"conn_type": "spark"}, "has no host"),
        ({"conn_type": "k8s"}, "has no host"),
    ],
)
def test_a_spark_connection_that_cannot_work_is_refused_with_its_name(values: dict[str, Any], words: str) -> None:
    with pytest.raises(BadConnection, match=f"'it'.*{words}"):
        spark_target(connection(**values), "it")


def test_a_standalone_cluster_cannot_run_a_python_driver_and_that_is_said() -> None:
    target = SparkTarget("spark://m:7077", "cluster")
    with pytest.raises(BadConnection, match=r"deploy-mode.*\bclient\b"):
        _ = target.runner


# --- storage -----------------------------------------------------------------------------------------------------------


def test_login_and_password_are_key_and_secret_of_the_storage() -> None:
    found = storage_options(connection("aws", login="me", password="hunter2", extra='{"endpoint_url": "http://s3"}'))
    assert found == {"key": "me", "secret": "hunter2", "endpoint_url": "http://s3"}


def test_what_the_extra_field_says_wins() -> None:
    assert storage_options(connection("aws", login="me", extra='{"key": "you"}')) == {"key": "you"}


def test_a_stream_names_the_connections_it_needs_and_no_others() -> None:
    assert names_of(a_stream()) == ["kafka_default", "spark_default"]
    assert names_of(a_stream(checkpoint_conn_id="s3")) == ["kafka_default", "spark_default", "s3"]


def test_connections_do_not_show_their_secrets_when_printed() -> None:
    held = Connections({"sasl.password": "hunter2"}, SparkTarget("local", "client", {"x": "hunter2"}), {"k": "hunter2"})
    assert "hunter2" not in repr(held)


# --- the hook ----------------------------------------------------------------------------------------------------------

Known = dict[str, Connection]


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Known:
    """The connections that Airflow knows."""
    found: Known = {
        "kafka_default": connection("kafka", extra=KAFKA),
        "spark_default": connection("spark", host="local[*]"),
    }

    def get(name: str) -> Connection:
        if name not in found:
            raise AirflowNotFoundException(f"The conn_id `{name}` isn't defined")
        return found[name]

    async def aget(name: str) -> Connection:
        return get(name)

    monkeypatch.setattr(BaseHook, "get_connection", staticmethod(get))
    monkeypatch.setattr(BaseHook, "aget_connection", staticmethod(aget))
    return found


@pytest.fixture
def masked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    from airflow.providers.common.compat import sdk

    found: list[str] = []
    monkeypatch.setattr(sdk, "mask_secret", found.append, raising=False)
    return found


def with_await(hook: StreamHook) -> Any:
    return asyncio.run(hook.aget_conn())


@pytest.mark.parametrize("get", [StreamHook.get_conn, with_await])
def test_the_hook_joins_a_stream_with_its_connections(
    known: Known, tmp_path: Path, get: Callable[[StreamHook], Any]
) -> None:
    stream = a_stream(checkpoint=f"file://{tmp_path}")
    control = get(StreamHook(stream, "dag.task run"))
    assert (control.stream, control.by) == (stream, "dag.task run")
    assert control.access.kafka == {"bootstrap.servers": "k:9092", "sasl.username": "u", "sasl.password": "hunter2"}
    assert isinstance(control.runner, ProcessRunner)
    assert control.access.files.root == str(tmp_path)


@pytest.mark.parametrize("get", [StreamHook.get_conn, with_await])
@pytest.mark.parametrize("name", ["kafka_default", "spark_default"])
def test_an_unknown_connection_is_an_error_with_the_command_that_adds_it(
    known: Known, get: Callable[[StreamHook], Any], name: str
) -> None:
    """Airflow's own Spark hook would take YARN instead."""
    del known[name]
    with pytest.raises(BadConnection, match=rf"{name}.*'orders'.*airflow connections add {name}"):
        get(StreamHook(a_stream()))


@pytest.mark.parametrize("get", [StreamHook.get_conn, with_await])
def test_a_connection_that_cannot_be_read_now_is_not_called_unknown(
    known: Known, monkeypatch: pytest.MonkeyPatch, get: Callable[[StreamHook], Any]
) -> None:
    """A trigger goes on after an error that may pass, and gives up at once when a connection does not exist."""

    def away(name: str) -> Connection:
        raise ConnectionError("the secrets backend is away")

    async def aaway(name: str) -> Connection:
        return away(name)

    monkeypatch.setattr(BaseHook, "get_connection", staticmethod(away))
    monkeypatch.setattr(BaseHook, "aget_connection", staticmethod(aaway))
    with pytest.raises(ConnectionError):
        get(StreamHook(a_stream()))


def test_every_secret_of_every_connection_is_masked_from_then_on(
    known: Known, masked: list[str], tmp_path: Path
) -> None:
    known["spark_default"] = connection("spark", host="local[*]", extra='{"some.secret": "hunter3"}')
    known["store"] = connection("aws", login="me", password="hunter4", extra='{"anon": false}')
    stream = a_stream(checkpoint=f"file://{tmp_path}", checkpoint_conn_id="store")
    StreamHook(stream).get_conn()
    assert sorted(masked) == ["hunter2", "hunter3", "hunter4"]


def test_the_runner_may_be_chosen_by_the_stream() -> None:
    settings = read_settings()
    held = Connections({}, SparkTarget("yarn", "cluster", {"yarn_resourcemanager_webapp_address": "http://rm:8088"}))
    assert isinstance(make_runner(a_stream(), held, settings), YarnRunner)
    assert isinstance(make_runner(a_stream(runner="process"), held, settings), ProcessRunner)


def test_a_yarn_cluster_whose_resource_manager_is_not_named_is_refused() -> None:
    held = Connections({}, SparkTarget("yarn", "cluster", {}))
    with pytest.raises(BadConnection, match="yarn_resourcemanager_webapp_address"):
        make_runner(a_stream(), held, read_settings())


# --- airflow.cfg -------------------------------------------------------------------------------------------------------


def test_every_option_has_a_default_that_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(tmp_path / "dags"))
    settings = read_settings()
    assert settings.work_folder == tmp_path / "airflow_ckpt"
    assert settings.application_folders == (tmp_path / "dags", tmp_path)
    assert settings.poll_interval > 0


def test_the_deployment_may_say_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("b.jar", "a.jar"):
        (tmp_path / name).touch()
    for option, value in {
        "WORK_FOLDER": "/data/x",
        "APPLICATIONS_FOLDER": "/apps",
        "SPARK_JARS": f"{tmp_path}/*.jar,/else/c.jar",
        "POLL_INTERVAL": "2.5",
    }.items():
        monkeypatch.setenv(f"AIRFLOW__AIRFLOW_CKPT__{option}", value)
    settings = read_settings()
    assert (settings.work_folder, settings.application_folders) == (Path("/data/x"), (Path("/apps"),))
    assert settings.spark_jars == (f"{tmp_path}/a.jar", f"{tmp_path}/b.jar", "/else/c.jar")
    assert settings.poll_interval == 2.5
