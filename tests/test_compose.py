"""docker-compose.yaml, checked as far as that goes without a container engine: form, references, secrets and settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from airflow.models.connection import Connection

from airflow_ckpt import __version__
from airflow_ckpt.hooks.connections import kafka_from_connection, spark_target
from airflow_ckpt.local.airflow import home_files, stack_connections
from airflow_ckpt.local.airflow.component_processes import COMPONENTS
from airflow_ckpt.local.jars.stack_jars import KAFKA_VERSION
from airflow_ckpt.local.kafka import broker_settings

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
COMPOSE = ROOT / "docker-compose.yaml"
DOCKERFILES = (ROOT / "docker/airflow.Dockerfile", ROOT / "docker/spark.Dockerfile")
EXAMPLE = ROOT / "docker/env.example"

BROKERS = ("kafka-1", "kafka-2", "kafka-3")
ONE_SHOT = {"kafka-init", "airflow-init"}
AIRFLOW = ("airflow-apiserver", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer")
#: What depends on no other service: all others wait for one to be healthy.
FIRST = {*BROKERS, "postgres", "spark-master"}
#: Of the compose specification, what this file may use. A misspelt key would be an error of `docker compose`.
SERVICE_KEYS = {
    "image", "build", "restart", "stop_grace_period", "healthcheck", "hostname", "environment", "ports", "volumes",
    "command", "depends_on",
}  # fmt: skip
HEALTH_KEYS = {"test", "interval", "timeout", "retries", "start_period", "disable"}
CONDITIONS = {"service_healthy", "service_completed_successfully"}
DURATION = re.compile(r"(\d+[hms])+")
PINNED = re.compile(r"(?P<name>[a-z0-9./-]+):(?P<tag>\d+(\.\d+)+[\w.-]*)")
VARIABLE = re.compile(r"(?<!\$)\$(?:\{(?P<name>\w+)(?P<rest>[^}]*)\}|(?P<bare>\w+))")
SECRET_NAME = re.compile(r"PASSWORD|SECRET|FERNET|TOKEN|SQL_ALCHEMY_CONN")

#: The embedded Airflow's settings that a stream depends on and that are the same everywhere.
SAME = ("core.load_examples", "core.executor", "core.simple_auth_manager_users", "usage_data_collection.enabled")
#: Those that must be set here too, with a value of their own.
OWN = (
    "core.dags_folder", "core.fernet_key", "core.simple_auth_manager_passwords_file", "core.execution_api_server_url",
    "database.sql_alchemy_conn", "api.base_url", "api.secret_key", "api_auth.jwt_secret", "logging.base_log_folder",
    "airflow_ckpt.spark_jars",
)  # fmt: skip
#: Those of a laptop: fewer processes, other ports, and more haste than a server needs.
LAPTOP_ONLY = (
    "core.parallelism", "api.host", "api.port", "api.workers", "logging.worker_log_server_port",
    "logging.trigger_log_server_port", "dag_processor.refresh_interval", "dag_processor.min_file_process_interval",
    "airflow_ckpt.poll_interval",
)  # fmt: skip


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return document


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose["services"]
    return found


def _example_names() -> list[str]:
    return re.findall(r"^([A-Z_]+)=", EXAMPLE.read_text(), re.MULTILINE)


def _variables(text: str) -> Iterator[tuple[str, str]]:
    for found in VARIABLE.finditer(text):
        yield found["name"] or found["bare"], found["rest"] or ""


def test_it_has_the_services_of_more_than_one_machine(services: dict[str, Any]) -> None:
    assert set(services) == {
        *BROKERS, *ONE_SHOT, *AIRFLOW, "postgres", "spark-master", "spark-worker-1", "spark-worker-2",
    }  # fmt: skip


def test_every_key_is_one_that_compose_knows(compose: dict[str, Any], services: dict[str, dict[str, Any]]) -> None:
    assert {key for key in compose if not key.startswith("x-")} == {"name", "services", "volumes"}
    for name, service in services.items():
        assert set(service) <= SERVICE_KEYS, name
        health = service["healthcheck"]
        assert set(health) <= HEALTH_KEYS, name
        for key in ("interval", "timeout", "start_period"):
            assert DURATION.fullmatch(health.get(key, "1s")), f"{name}: {key}"
        environment = service.get("environment", {})
        # A bare number or true would be another value for each YAML reader.
        assert all(isinstance(value, str) for value in environment.values()), name
        assert all(isinstance(part, str) for part in service.get("command", [])), name


def test_every_image_is_pinned(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        assert PINNED.fullmatch(service["image"]), f"{name}: {service['image']}"
        if "build" in service:
            assert service["image"].endswith(f":{__version__}"), name
    for file in DOCKERFILES:
        used = re.findall(r"^(?:FROM|COPY --from=)\s*(\S+)", file.read_text(), re.MULTILINE)
        assert used
        assert [image for image in used if not PINNED.fullmatch(image)] == []


def test_the_brokers_are_of_the_release_that_the_tests_run_against(services: dict[str, dict[str, Any]]) -> None:
    for name in (*BROKERS, "kafka-init"):
        assert services[name]["image"] == f"apache/kafka:{KAFKA_VERSION}"


def test_everything_that_runs_is_watched_and_brought_back(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        if name in ONE_SHOT:
            assert service["healthcheck"] == {"disable": True}
            assert service["restart"] == "no"
        else:
            assert service["healthcheck"]["test"][0] == "CMD", name
            assert service["restart"] == "unless-stopped"


def test_nothing_starts_before_what_it_needs_is_well(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        needed = service.get("depends_on", {})
        assert bool(needed) == (name not in FIRST), name
        for other, how in needed.items():
            assert how["condition"] in CONDITIONS
            assert (how["condition"] == "service_completed_successfully") == (other in ONE_SHOT), f"{name}: {other}"
            assert other in services
    for name in AIRFLOW:
        assert "airflow-init" in services[name]["depends_on"]


def test_every_file_it_mounts_or_builds_from_exists(services: dict[str, dict[str, Any]]) -> None:
    for service in services.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (ROOT / source).exists(), volume
        if "build" in service:
            assert (ROOT / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_every_file_that_an_image_copies_exists_and_is_sent_to_the_builder() -> None:
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for file in DOCKERFILES:
        for line in re.findall(r"^COPY (?!--from)(?:--\S+ )*(.+)$", file.read_text(), re.MULTILINE):
            for source in line.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert source in sent, f"{source} is not in .dockerignore"


def test_every_volume_is_named_and_used(compose: dict[str, Any], services: dict[str, dict[str, Any]]) -> None:
    used = {
        volume.split(":")[0]
        for service in services.values()
        for volume in service.get("volumes", [])
        if not volume.startswith(".")
    }

    assert used == set(compose["volumes"])
    for name in (*BROKERS, "postgres"):
        assert len(services[name]["volumes"]) == 1, f"{name} would lose its data with its container"


def test_driver_and_executors_see_the_checkpoints_under_one_path(services: dict[str, dict[str, Any]]) -> None:
    for name in (*AIRFLOW, "spark-worker-1", "spark-worker-2"):
        assert "checkpoints:/opt/checkpoints" in services[name]["volumes"], name
    assert services["airflow-scheduler"]["environment"]["CKPT_CHECKPOINTS"] == "file:///opt/checkpoints"
    for file in DOCKERFILES:
        assert "chown 50000:0 /opt/checkpoints" in file.read_text(), "one user must own it in both"


def test_airflow_has_the_components_of_the_embedded_stack(services: dict[str, dict[str, Any]]) -> None:
    commands = [services[name]["command"] for name in AIRFLOW]

    assert sorted(commands) == sorted([component] for component in COMPONENTS)


def test_spark_is_started_by_the_classes_that_the_tests_start(services: dict[str, dict[str, Any]]) -> None:
    """tests/support/standalone.py runs the same two classes of the same version."""
    tried = (ROOT / "tests/support/standalone.py").read_text()
    for name in ("spark-master", "spark-worker-1", "spark-worker-2"):
        launcher, main_class, *_ = services[name]["command"]
        assert launcher.endswith("/bin/spark-class")
        assert main_class in tried, name


def test_a_missing_secret_stops_compose_and_says_what_to_do() -> None:
    used = dict(_variables(COMPOSE.read_text()))

    assert used
    assert {name: rest for name, rest in used.items() if rest != ":?run docker/make-env.sh"} == {}
    assert set(used) == set(_example_names())


def test_no_secret_is_written_down(services: dict[str, dict[str, Any]]) -> None:
    assert re.findall(r"^[A-Z_]+=.+$", EXAMPLE.read_text(), re.MULTILINE) == []
    for name, service in services.items():
        for key, value in service.get("environment", {}).items():
            if SECRET_NAME.search(key) and not key.endswith("_FILE"):
                assert "${" in value, f"{name}: {key}"
    assert "/.env" in (ROOT / ".gitignore").read_text().splitlines()


def test_only_this_machine_can_reach_the_published_ports(services: dict[str, dict[str, Any]]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]

    assert ports
    assert [port for port in ports if not re.fullmatch(r"127\.0\.0\.1:\d+(-\d+)?:\d+(-\d+)?", port)] == []
    published = [port.rpartition(":")[0] for port in ports]
    assert len(published) == len(set(published))


@pytest.mark.parametrize("broker", BROKERS)
def test_a_broker_is_as_strict_as_those_of_the_embedded_stack(broker: str, services: dict[str, Any]) -> None:
    environment = services[broker]["environment"]
    wanted = {"KAFKA_" + name.upper().replace(".", "_"): value for name, value in broker_settings.durability(3).items()}

    assert {name: environment.get(name) for name in wanted} == wanted
    assert environment["KAFKA_MIN_INSYNC_REPLICAS"] == environment["KAFKA_TRANSACTION_STATE_LOG_MIN_ISR"] == "2"
    assert environment["KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR"] == "3"


def test_the_three_brokers_are_one_cluster(services: dict[str, dict[str, Any]]) -> None:
    settings = [services[name]["environment"] for name in BROKERS]
    voters = {part for s in settings for part in s["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",")}

    assert voters == {f"{s['KAFKA_NODE_ID']}@{name}:9093" for name, s in zip(BROKERS, settings, strict=True)}
    assert len({s["CLUSTER_ID"] for s in settings}) == 1
    for name, s in zip(BROKERS, settings, strict=True):
        outside = s["KAFKA_ADVERTISED_LISTENERS"].rpartition(":")[2]
        assert s["KAFKA_ADVERTISED_LISTENERS"].startswith(f"PLAINTEXT://{name}:9092,")
        assert services[name]["ports"] == [f"127.0.0.1:{outside}:19092"]
        assert services[name]["volumes"] == [f"{name}-data:{s['KAFKA_LOG_DIRS']}"]


@pytest.mark.parametrize("component", AIRFLOW)
def test_airflow_is_set_up_as_in_the_embedded_stack(component: str, services: dict[str, Any], tmp_path: Path) -> None:
    environment = services[component]["environment"]
    ports = home_files.Ports(8080, 8793, 8794)
    embedded = {
        f"{section}.{option}": str(value)
        for section, options in home_files.settings(tmp_path, dags=tmp_path, ports=ports).items()
        for option, value in options.items()
    }

    def here(setting: str) -> str | None:
        section, option = setting.split(".")
        value: str | None = environment.get(f"AIRFLOW__{section.upper()}__{option.upper()}")
        return value

    assert set(embedded) == {*SAME, *OWN, *LAPTOP_ONLY}, "a new setting: the same here, its own here, or a laptop's?"
    assert {setting: here(setting) for setting in SAME} == {setting: embedded[setting] for setting in SAME}
    assert [setting for setting in OWN if not here(setting)] == []


def test_the_connections_can_be_used_by_a_stream(services: dict[str, dict[str, Any]]) -> None:
    environment = services["airflow-scheduler"]["environment"]
    embedded = stack_connections.connections({"bootstrap.servers": "x"}, "local[2]")
    for name, value in embedded.items():
        given = json.loads(environment[f"AIRFLOW_CONN_{name.upper()}"])
        assert set(given) == set(value), name
        assert set(given["extra"]) == set(value["extra"]), name
    kafka = Connection.from_json(environment["AIRFLOW_CONN_KAFKA_DEFAULT"], "kafka_default")
    spark = spark_target(
        Connection.from_json(environment["AIRFLOW_CONN_SPARK_DEFAULT"], "spark_default"), "spark_default"
    )

    assert kafka_from_connection(kafka, "kafka_default")["bootstrap.servers"] == ",".join(f"{b}:9092" for b in BROKERS)
    assert (spark.master, spark.runner) == ("spark://spark-master:7077", "process")
    for worker in ("spark-worker-1", "spark-worker-2"):
        assert services[worker]["command"][-1] == spark.master
        assert services[worker]["command"][3] == services[worker]["hostname"] == worker
