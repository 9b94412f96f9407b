"""Drivers on Kubernetes are killed: their pods are deleted, and the end is waited for."""

from __future__ import annotations

import pytest

from airflow_ckpt.exceptions import RunnerError
from airflow_ckpt.streams.driver_state import ENDED, RUNNING, UNKNOWN, VANISHED
from tests.airflow_ckpt.runners.fake_kubernetes import HANDLE, NAME, Cluster, container, deleted, over, runner, status
from tests.airflow_ckpt.runners.fakes import Answer, Request, Server

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_a_killed_driver_is_waited_for(server: Server, cluster: Cluster, phase: str) -> None:
    cluster.add(phase)

    state = runner(server).kill(HANDLE)

    assert (state.state, state.exit_code) == (ENDED, None)
    assert NAME in state.detail
    assert cluster.pods == {}


def test_a_kill_of_one_that_has_ended_keeps_its_log(server: Server, cluster: Cluster) -> None:
    cluster.add("Failed", container(over(3)))

    assert runner(server).kill(HANDLE).exit_code == 3
    assert NAME in cluster.pods


def test_a_pod_that_another_took_the_place_of_meanwhile_is_not_killed(server: Server, cluster: Cluster) -> None:
    cluster.add()

    def answer(request: Request) -> Answer:
        if request.method == "DELETE":
            cluster.add(token="ffff")
        return cluster.answer(request)

    server.handle = answer

    assert runner(server).kill(HANDLE, wait=0).state == VANISHED
    assert cluster.pods[NAME]["metadata"]["labels"]["ckpt-token"] == "ffff"


def test_a_kill_does_not_wait_without_end(server: Server, cluster: Cluster) -> None:
    cluster.obedient = False
    deleted(cluster, -10)

    state = runner(server).kill(HANDLE, wait=0.2)

    assert state.state == RUNNING
    assert "deleted" in state.detail


def test_a_kill_whose_end_no_node_confirms_is_not_called_one(server: Server, cluster: Cluster) -> None:
    cluster.obedient = False
    deleted(cluster, 60)

    assert runner(server).kill(HANDLE, wait=0.2).state == UNKNOWN


@pytest.mark.parametrize("code", [401, 403])
def test_a_kill_that_is_refused_names_what_to_do(server: Server, cluster: Cluster, code: int) -> None:
    """Airflow's hook only logs it, and the driver runs on."""
    cluster.add()
    server.handle = lambda request: (
        cluster.answer(request) if request.method == "GET" else status(code, "Forbidden", "cannot delete pods")
    )

    with pytest.raises(
        RunnerError, match=f"cannot delete pods.*can-i delete pods.*kubectl delete pod -n streams {NAME}"
    ):
        runner(server).kill(HANDLE)
    assert len(server.requests) == 2, "asked again, though the answer will be the same"
