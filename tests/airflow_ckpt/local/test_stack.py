"""Kafka and Airflow as one thing: what is checked before a start, and what is left after a failed one."""

from __future__ import annotations

import shutil
import sys
from collections import namedtuple
from functools import partial
from pathlib import Path

import pytest

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local import stack
from airflow_ckpt.local.airflow.standalone import AirflowStandalone
from airflow_ckpt.local.announcements import Announce, quiet
from airflow_ckpt.local.kafka.cluster import KafkaCluster
from airflow_ckpt.local.processes.ports import free_port
from tests.support.leftovers import processes_of

DiskUsage = namedtuple("DiskUsage", "total used free")


@pytest.mark.unit
def test_too_little_disk_is_said_in_one_line_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: DiskUsage(10**10, 9 * 10**9, 10**9))

    with pytest.raises(StackError, match=r"\b1\.0 GB.*\b2 GB.*AIRFLOW_CKPT_HOME") as error:
        stack.up(tmp_path / "home")

    assert "\n" not in str(error.value)
    assert not (tmp_path / "home").exists()


@pytest.mark.unit
def test_a_missing_java_is_said_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))

    with pytest.raises(StackError, match="JAVA_HOME"):
        stack.up(tmp_path / "home")

    assert not (tmp_path / "home").exists()


@pytest.mark.unit
def test_a_stack_that_never_was_is_down_and_looking_at_it_creates_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"

    assert stack.down(home) == stack.status(home)
    assert not stack.status(home)["running"]
    assert not home.exists()


@pytest.mark.unit
def test_a_command_is_shown_as_it_can_be_typed_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Path(sys.executable).with_name("airflow-ckpt")
    monkeypatch.setenv("AIRFLOW_CKPT_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(program.parents[1])
    assert stack.command(tmp_path, "local down") == f"{program.parent.name}/airflow-ckpt local down"

    monkeypatch.setenv("PATH", str(program.parent))
    assert stack.command(tmp_path, "local down") == "airflow-ckpt local down"
    assert stack.command(tmp_path / "x", "local down") == f"airflow-ckpt local down --home {tmp_path / 'x'}"


@pytest.mark.unit
def test_a_checkout_brings_its_own_example_dags() -> None:
    assert stack.project_dags() == Path(__file__).parents[3] / "dags"


def _fails(self: AirflowStandalone, announce: Announce = quiet) -> None:
    raise StackError("Airflow", kind="made_to_fail")


@pytest.fixture(autouse=True)
def own_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests in another process may bring up a stack at the same moment, and would choose the same ports."""
    monkeypatch.setattr(stack, "KafkaCluster", partial(KafkaCluster, base_port=free_port()))


@pytest.mark.integration
def test_when_airflow_fails_kafka_is_stopped_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AirflowStandalone, "start", _fails)
    said: list[str] = []

    with pytest.raises(StackError) as failed:
        stack.up(tmp_path, announce=said.append)

    assert failed.value.kind == "made_to_fail"
    bootstrap = KafkaCluster(tmp_path / "kafka").bootstrap
    assert any(bootstrap in line for line in said), "Kafka was up, so there was something to stop"
    assert processes_of(tmp_path) == []


@pytest.mark.integration
def test_when_airflow_fails_a_kafka_that_ran_before_is_left_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AirflowStandalone, "start", _fails)
    stack.up(tmp_path, kafka_only=True)
    try:
        with pytest.raises(StackError) as failed:
            stack.up(tmp_path)

        assert failed.value.kind == "made_to_fail"
        assert stack.status(tmp_path)["kafka"]["running"]
    finally:
        stack.down(tmp_path)
    assert processes_of(tmp_path) == []
