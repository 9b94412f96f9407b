"""Drivers on Kubernetes, through its own client library, against a local server that speaks the pod API."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.exceptions import NotInstalled, RunnerError, SubmitFailed
from airflow_ckpt.runners.kubernetes import DRIVER_CONTAINER, KubernetesRunner
from airflow_ckpt.streams.driver_state import UNKNOWN, Handle
from tests.airflow_ckpt.runners.fake_kubernetes import HANDLE, NAME, TOKEN, Cluster, pod, runner, status
from tests.airflow_ckpt.runners.fakes import Answer, Server, submit

pytestmark = pytest.mark.unit


# --- start and find


def test_the_driver_carries_its_token_and_is_put_where_we_look(server: Server) -> None:
    assert runner(server).properties(TOKEN) == {
        "spark.kubernetes.driver.label.ckpt-token": TOKEN,
        "spark.kubernetes.submission.waitAppCompletion": "false",
        "spark.kubernetes.namespace": "streams",
    }


def test_a_submitted_driver_is_found_by_its_token_and_not_by_what_spark_prints(server: Server, tmp_path: Path) -> None:
    launch = submit(tmp_path, f"post({server.url!r}, {pod('Pending')!r}); print('pod name: other-1-driver')")

    handle = runner(server).start(launch, TOKEN)

    assert (handle.kind, handle.id, handle.token) == ("kubernetes", f"streams:{NAME}", TOKEN)
    assert Handle.from_dict(handle.as_dict()) == handle
    assert not (tmp_path / "secret.properties").exists()


def test_a_submit_that_fails_after_the_pod_is_there_gives_its_handle(server: Server, tmp_path: Path) -> None:
    launch = submit(tmp_path, f"post({server.url!r}, {pod('Pending')!r}); sys.exit(1)")

    assert runner(server).start(launch, TOKEN).id == HANDLE.id
    assert not (tmp_path / "secret.properties").exists()


def test_a_submit_that_fails_before_there_is_a_pod_says_why(server: Server, tmp_path: Path) -> None:
    with pytest.raises(SubmitFailed, match="AccountMissing"):
        runner(server).start(submit(tmp_path, "sys.exit('AccountMissing')"), TOKEN)
    assert not (tmp_path / "secret.properties").exists()


def test_a_token_finds_its_own_pod_only(server: Server, cluster: Cluster) -> None:
    cluster.add(name="other", token="ffff")
    assert runner(server).find(TOKEN) is None

    cluster.add("Failed")
    assert runner(server).find(TOKEN) == HANDLE


def test_of_two_pods_with_one_token_the_living_one_counts(server: Server, cluster: Cluster) -> None:
    cluster.add("Running")
    cluster.add("Failed", name="other")

    assert runner(server).find(TOKEN) == HANDLE


# --- the log


def test_the_end_of_the_log_is_read(server: Server, cluster: Cluster) -> None:
    cluster.add()

    assert runner(server).log_tail(HANDLE, lines=1) == "two\n"


def test_a_log_of_json_stays_as_it_is(server: Server, cluster: Cluster) -> None:
    cluster.add()
    cluster.log = json.dumps({"level": "INFO"})

    assert runner(server).log_tail(HANDLE) == '{"level": "INFO"}'


@pytest.mark.parametrize("instead", [None, status(403, "Forbidden"), status(500, "InternalError")])
def test_without_an_answer_the_command_for_the_log_is_named(server: Server, instead: Answer | None) -> None:
    server.instead = instead

    assert f"kubectl logs -n streams {NAME} -c {DRIVER_CONTAINER}" in runner(server).log_tail(HANDLE)


# --- connect


def kubeconfig(folder: Path, url: str) -> str:
    file = folder / "config"
    cluster = {"name": "c", "cluster": {"server": url}}
    context = {"name": "here", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {"token": "t0k3n"}}
    file.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "users": [user]}))
    return str(file)


def test_a_kubeconfig_leads_to_its_cluster(server: Server, cluster: Cluster, tmp_path: Path) -> None:
    cluster.add()

    connected = KubernetesRunner.connect("streams", None, kubeconfig(tmp_path, server.url), "here")

    assert connected.find(TOKEN) == HANDLE
    assert server.requests[0].headers["authorization"] == "Bearer t0k3n"


def test_a_time_out_is_not_multiplied_by_silent_repetitions(server: Server, tmp_path: Path) -> None:
    server.answers.clear()

    connected = KubernetesRunner.connect(
        "streams", config_file=kubeconfig(tmp_path, server.url), context="here", timeout=0.1
    )

    assert connected.look(HANDLE).state == UNKNOWN
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({"config_file": "/no/such/file"}, "cannot connect to Kubernetes with /no/such/file"),
        ({"in_cluster": True}, "with the pod's service account"),
    ],
)
def test_a_cluster_that_cannot_be_named_is_an_error_with_a_command(place: dict[str, Any], words: str) -> None:
    with pytest.raises(RunnerError, match=f"{words}.*kubectl cluster-info"):
        KubernetesRunner.connect("streams", **place)


def test_inside_a_pod_its_own_cluster_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")

    with pytest.raises(RunnerError, match="service account"):
        KubernetesRunner.connect("streams")


def test_a_missing_client_library_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's hook raises a NameError."""
    monkeypatch.setitem(sys.modules, "kubernetes", None)

    with pytest.raises(NotInstalled, match=r"pip install 'airflow-ckpt\[kubernetes\]'"):
        KubernetesRunner.connect("streams")


def test_a_handle_leads_into_no_other_namespace(server: Server) -> None:
    """It is noted beside the checkpoint, where users may write whose own accounts reach fewer namespaces than ours."""
    handle = Handle("kubernetes", f"payroll:{NAME}", TOKEN)

    assert runner(server).look(handle).state == UNKNOWN
    with pytest.raises(RunnerError, match="'streams'"):
        runner(server).kill(handle)
    assert "payroll" in runner(server).log_tail(handle)
    assert server.requests == []
