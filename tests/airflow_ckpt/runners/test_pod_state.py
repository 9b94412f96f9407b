"""How a driver on Kubernetes is, by its pod and by what the API server answers."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ckpt.streams.driver_state import ENDED, RUNNING, UNKNOWN, VANISHED, WAITING
from tests.airflow_ckpt.runners.fake_kubernetes import (
    HANDLE,
    NAME,
    WORKS,
    Cluster,
    container,
    deleted,
    held,
    over,
    runner,
)
from tests.airflow_ckpt.runners.fakes import Server

pytestmark = pytest.mark.unit


def test_a_driver_runs_while_its_container_does(server: Server, cluster: Cluster) -> None:
    cluster.add()

    state = runner(server).look(HANDLE)

    assert (state.state, state.exit_code) == (RUNNING, None)


def test_a_pod_that_waits_says_for_what(server: Server, cluster: Cluster) -> None:
    cluster.add("Pending", container(held("ImagePullBackOff", "spark:9")))
    assert runner(server).look(HANDLE).state == WAITING
    assert runner(server).look(HANDLE).detail == "ImagePullBackOff: spark:9"

    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "NoNode"}
    cluster.add("Pending", conditions=[unscheduled])
    assert runner(server).look(HANDLE).detail == "Unschedulable: NoNode"

    init = container(held("CrashLoopBackOff"), "fetch-jars")
    cluster.add("Pending", container(held("PodInitializing")), initContainerStatuses=[init])
    assert runner(server).look(HANDLE).detail == "CrashLoopBackOff"

    cluster.add("Pending")
    assert (runner(server).look(HANDLE).state, runner(server).look(HANDLE).detail) == (WAITING, "Pending")


def test_a_driver_that_still_waits_in_a_running_pod_does_not_run(server: Server, cluster: Cluster) -> None:
    cluster.add("Running", container(held("ContainerCreating")), container(WORKS, "proxy"))

    assert runner(server).look(HANDLE).state == WAITING


@pytest.mark.parametrize("code", [0, 1, 137])
def test_a_sidecar_that_keeps_the_pod_running_does_not_hide_the_drivers_end(
    server: Server, cluster: Cluster, code: int
) -> None:
    """Airflow's hook looks at the pod, which stays Running."""
    cluster.add("Running", container(WORKS, "istio-proxy"), container(over(code, "Completed" if not code else "Error")))

    state = runner(server).look(HANDLE)

    assert (state.state, state.exit_code) == (ENDED, code)
    assert state.ended_at == 1_767_225_660.0


def test_a_sidecar_that_ends_is_not_the_drivers_end(server: Server, cluster: Cluster) -> None:
    cluster.add("Running", container(over(0, "Completed"), "istio-proxy"), container(WORKS))

    assert runner(server).look(HANDLE).state == RUNNING


def test_a_sidecar_that_fails_does_not_make_the_driver_fail(server: Server, cluster: Cluster) -> None:
    cluster.add("Failed", container(over(2), "istio-proxy"), container(over(0, "Completed")))

    assert runner(server).look(HANDLE).exit_code == 0


def test_a_container_that_a_template_named_otherwise_is_the_driver_too(server: Server, cluster: Cluster) -> None:
    cluster.add("Running", container(over(3), "my-driver"))
    assert runner(server).look(HANDLE).exit_code == 3

    cluster.add("Running", container(over(3), "my-driver"), container(WORKS, "istio-proxy"))
    assert runner(server, container="my-driver").look(HANDLE).exit_code == 3


def test_a_pod_that_succeeded_is_a_success(server: Server, cluster: Cluster) -> None:
    cluster.add("Succeeded", container(over(0, "Completed")))
    assert (runner(server).look(HANDLE).state, runner(server).look(HANDLE).exit_code) == (ENDED, 0)

    cluster.add("Succeeded")
    assert (runner(server).look(HANDLE).state, runner(server).look(HANDLE).exit_code) == (ENDED, 0)


def test_a_driver_that_ran_out_of_memory_says_so(server: Server, cluster: Cluster) -> None:
    cluster.add("Failed", container(over(137, "OOMKilled")))

    state = runner(server).look(HANDLE)

    assert (state.state, state.exit_code) == (ENDED, 137)
    assert state.detail == "OOMKilled (exit code 137)"


@pytest.mark.parametrize("containers", [[], [container(over(0, "Completed"))]])
def test_an_evicted_pod_is_never_a_success(server: Server, cluster: Cluster, containers: list[dict[str, Any]]) -> None:
    cluster.add("Failed", *containers, reason="Evicted", message="LowOnMemory")

    state = runner(server).look(HANDLE)

    assert (state.state, state.exit_code) == (ENDED, 1)
    assert state.detail.startswith("Evicted: LowOnMemory")


def test_a_driver_that_never_started_says_which_step_failed(server: Server, cluster: Cluster) -> None:
    init = container(over(7, "Error", message="JarsMissing"), "fetch-jars")
    cluster.add("Failed", container(held("PodInitializing")), initContainerStatuses=[init])

    state = runner(server).look(HANDLE)

    assert (state.state, state.exit_code) == (ENDED, 7)
    assert "JarsMissing" in state.detail


def test_a_later_pod_with_the_same_name_is_another_driver(server: Server, cluster: Cluster) -> None:
    """spark.kubernetes.driver.pod.name gives each run's pod the same name."""
    cluster.add(token="ffff")

    assert runner(server).look(HANDLE).state == VANISHED
    assert runner(server).kill(HANDLE).state == VANISHED
    assert NAME in cluster.pods


def test_a_pod_on_a_node_that_does_not_report_is_no_verdict(server: Server, cluster: Cluster) -> None:
    cluster.add("Unknown", reason="NodeLost")

    assert runner(server).look(HANDLE).state == UNKNOWN


@pytest.mark.parametrize(("since", "grace"), [(-8, 10), (8, 10), (25, 30), (8, 1)])
def test_a_pod_that_is_being_deleted_runs_as_long_as_its_node_may_take(
    server: Server, cluster: Cluster, since: float, grace: float
) -> None:
    deleted(cluster, since, grace)

    state = runner(server).look(HANDLE)

    assert state.state == RUNNING
    assert "deleted" in state.detail


@pytest.mark.parametrize("grace", [10, None])
@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_a_deletion_that_its_node_does_not_confirm_is_no_verdict(
    server: Server, cluster: Cluster, phase: str, grace: float | None
) -> None:
    deleted(cluster, 60, grace, phase)

    state = runner(server).look(HANDLE)

    assert (state.state, state.live) == (UNKNOWN, False)
    assert "deletion" in state.detail


def test_a_driver_that_ended_has_ended_however_long_ago_its_deletion_was_ordered(
    server: Server, cluster: Cluster
) -> None:
    deleted(cluster, 60, 10, "Running", container(over(143)))

    assert runner(server).look(HANDLE).state == ENDED
