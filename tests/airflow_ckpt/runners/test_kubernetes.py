"""Drivers on Kubernetes, through its own client library, against a local server that speaks the pod API."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.runners.base import ENDED, RUNNING, UNKNOWN, VANISHED, WAITING, Handle, RunnerError, SubmitFailed
from airflow_ckpt.runners.kubernetes import DRIVER_CONTAINER, KubernetesRunner
from tests.airflow_ckpt.runners.fakes import Answer, Request, Server, serving, submit

pytestmark = pytest.mark.unit

TOKEN = "0a1b2c"
NAME = "orders-5f-driver"
HANDLE = Handle("kubernetes", f"streams:{NAME}", TOKEN)
PODS = "/api/v1/namespaces/streams/pods"
WORKS = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def over(code: int, reason: str = "Error", **fields: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": "2026-01-01T00:01:00Z", **fields}}


def held(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def container(state: dict[str, Any], name: str = DRIVER_CONTAINER) -> dict[str, Any]:
    return {
        "name": name,
        "state": state,
        "ready": True,
        "restartCount": 0,
        "image": "spark",
        "imageID": "spark",
    }


def pod(
    phase: str = "Running", *containers: dict[str, Any], name: str = NAME, token: str = TOKEN, **status: Any
) -> dict[str, Any]:
    """A pod as the API server shows it; without containers it has one driver that works."""
    shown = containers if containers or phase != "Running" else (container(WORKS),)
    names = [one["name"] for one in shown] or [DRIVER_CONTAINER]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "streams",
            "uid": f"uid-of-{token}",
            "labels": {"ckpt-token": token, "spark-role": "driver"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"containers": [{"name": name, "image": "spark"} for name in names]},
        "status": {"phase": phase, "containerStatuses": list(shown), **status},
    }


def status(code: int, reason: str, message: str = "") -> Answer:
    """How the API server says no."""
    return Answer(code, {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code})


class Cluster:
    """The part of an API server that we ask."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.log = "one\ntwo\n"
        #: Whether a deleted pod goes away.
        self.obedient = True

    def add(self, *args: Any, **fields: Any) -> dict[str, Any]:
        new = pod(*args, **fields)
        self.pods[new["metadata"]["name"]] = new
        return new

    def answer(self, request: Request) -> Answer:
        if request.method == "POST":
            self.pods[request.body["metadata"]["name"]] = request.body
            return Answer()
        if request.path == PODS:
            label, _, value = request.query["labelSelector"].partition("=")
            hits = [one for one in self.pods.values() if one["metadata"]["labels"].get(label) == value]
            return Answer(200, {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": hits})
        name, _, part = request.path.removeprefix(f"{PODS}/").partition("/")
        one = self.pods.get(name)
        if one is None:
            return status(404, "NotFound", f'pods "{name}" not found')
        if part == "log":
            assert request.query["container"] == DRIVER_CONTAINER
            return Answer(200, "".join(self.log.splitlines(True)[-int(request.query["tailLines"]) :]))
        if request.method == "DELETE":
            if request.body["preconditions"]["uid"] != one["metadata"]["uid"]:
                return status(409, "Conflict", "the UID in the precondition does not match")
            assert request.body["gracePeriodSeconds"] > 0
            if self.obedient:
                del self.pods[name]
        return Answer(200, one)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def server(cluster: Cluster) -> Iterator[Server]:
    with serving(cluster.answer) as answering:
        yield answering


def runner(server: Server, **options: Any) -> KubernetesRunner:
    settings = client.Configuration(host=server.url)
    settings.retries = 0
    api = client.CoreV1Api(client.ApiClient(settings))
    return KubernetesRunner("streams", api, **{"timeout": 5.0, "settle": 0.0, **options})


# --- how it is


def test_a_driver_runs_while_its_container_does(server: Server, cluster: Cluster) -> None:
    cluster.add()

    state = runner(server).look(HANDLE)

    assert (state.state, state.exit_code) == (RUNNING, None)


def test_a_pod_that_waits_tells_for_what(server: Server, cluster: Cluster) -> None:
    cluster.add("Pending", container(held("ImagePullBackOff", "no such image: spark:9")))
    assert runner(server).look(HANDLE).state == WAITING
    assert runner(server).look(HANDLE).detail == "ImagePullBackOff: no such image: spark:9"

    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node is free"}
    cluster.add("Pending", conditions=[unscheduled])
    assert runner(server).look(HANDLE).detail == "Unschedulable: no node is free"

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
    """Airflow's hook looks at the pod, which stays Running for ever."""
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


def test_a_driver_without_memory_tells_so(server: Server, cluster: Cluster) -> None:
    cluster.add("Failed", container(over(137, "OOMKilled")))

    state = runner(server).look(HANDLE)

    assert (state.state, state.exit_code) == (ENDED, 137)
    assert state.detail == "OOMKilled (exit code 137)"


@pytest.mark.parametrize("containers", [[], [container(over(0, "Completed"))]])
def test_an_evicted_pod_is_never_a_success(server: Server, cluster: Cluster, containers: list[dict[str, Any]]) -> None:
    cluster.add("Failed", *containers, reason="Evicted", message="The node was low on resource: memory.")

    state = runner(server).look(HANDLE)

    assert (state.state, state.exit_code) == (ENDED, 1)
    assert state.detail.startswith("Evicted: The node was low on resource: memory.")


def test_a_driver_that_never_started_tells_which_step_failed(server: Server, cluster: Cluster) -> None:
    init = container(over(7, "Error", message="cannot fetch jars"), "fetch-jars")
    cluster.add("Failed", container(held("PodInitializing")), initContainerStatuses=[init])

    state = runner(server).look(HANDLE)

    assert (state.state, state.exit_code) == (ENDED, 7)
    assert "cannot fetch jars" in state.detail


def test_a_pod_that_vanished_is_never_a_success(server: Server) -> None:
    """Airflow's hook takes a deleted pod for a finished one, and the task succeeds."""
    state = runner(server).look(HANDLE)

    assert state.state == VANISHED
    assert state.exit_code is None
    assert NAME in state.detail


def test_a_later_pod_with_the_same_name_is_another_driver(server: Server, cluster: Cluster) -> None:
    """spark.kubernetes.driver.pod.name gives each run's pod the same name."""
    cluster.add(token="ffff")

    assert runner(server).look(HANDLE).state == VANISHED
    assert runner(server).kill(HANDLE).state == VANISHED
    assert NAME in cluster.pods


def test_a_pod_on_a_node_that_does_not_report_is_no_verdict(server: Server, cluster: Cluster) -> None:
    cluster.add("Unknown", reason="NodeLost")

    assert runner(server).look(HANDLE).state == UNKNOWN


def dying(cluster: Cluster, since: float, grace: float | None = 10, *args: Any, **fields: Any) -> None:
    """A pod whose time to end was over so many seconds ago: Kubernetes writes the end of the grace period into it."""
    over_at = datetime.now(UTC) - timedelta(seconds=since)
    known = {"deletionTimestamp": over_at.isoformat(), "deletionGracePeriodSeconds": grace}
    cluster.add(*args, **fields)["metadata"].update(known)


@pytest.mark.parametrize(("since", "grace"), [(-8, 10), (8, 10), (25, 30)])
def test_a_pod_that_is_being_deleted_runs_as_long_as_its_node_may_take(
    server: Server, cluster: Cluster, since: float, grace: float
) -> None:
    dying(cluster, since, grace)

    state = runner(server).look(HANDLE)

    assert (state.state, state.detail) == (RUNNING, "is being deleted")


@pytest.mark.parametrize("grace", [10, None])
@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_a_deletion_that_its_node_does_not_confirm_is_no_verdict(
    server: Server, cluster: Cluster, phase: str, grace: float | None
) -> None:
    dying(cluster, 60, grace, phase)

    state = runner(server).look(HANDLE)

    assert (state.state, state.live) == (UNKNOWN, False)
    assert "no node has confirmed its end" in state.detail


def test_a_driver_that_ended_has_ended_however_long_ago_its_deletion_was_ordered(
    server: Server, cluster: Cluster
) -> None:
    dying(cluster, 60, 10, "Running", container(over(143)))

    assert runner(server).look(HANDLE).state == ENDED


def test_a_404_of_another_web_server_says_nothing_about_the_driver(server: Server) -> None:
    server.instead = Answer(404, "<html>nginx: not found</html>")

    assert runner(server).look(HANDLE).state == UNKNOWN


@pytest.mark.parametrize(
    ("instead", "reason"),
    [
        (status(401, "Unauthorized"), "kubectl auth can-i"),
        (status(403, "Forbidden", "pods is forbidden"), "pods is forbidden"),
        (status(429, "TooManyRequests"), "HTTP 429"),
        (status(500, "InternalError", "etcd has no leader"), "etcd has no leader"),
        (Answer(503, "<html>"), "HTTP 503"),
        (Answer(200, {"kind": "Pod", "spec": {}}), "ValueError"),
    ],
)
def test_any_other_answer_is_no_verdict(server: Server, instead: Answer, reason: str) -> None:
    server.instead = instead

    state = runner(server).look(HANDLE)

    assert (state.state, state.exit_code, state.live) == (UNKNOWN, None, False)
    assert reason in state.detail


def test_a_silent_api_server_is_no_verdict(server: Server) -> None:
    server.answers.clear()

    state = runner(server, timeout=0.1).look(HANDLE)

    assert state.state == UNKNOWN
    assert "does not answer" in state.detail


def test_an_api_server_that_is_down_is_no_verdict() -> None:
    with serving(lambda request: Answer()) as down:
        gone = runner(down)

    assert gone.look(HANDLE).state == UNKNOWN


def test_a_driver_of_another_runner_is_not_asked_for(server: Server) -> None:
    stranger = Handle("process", "4711", TOKEN)

    assert runner(server).look(stranger).state == UNKNOWN
    with pytest.raises(RunnerError, match="'process', not of 'kubernetes'"):
        runner(server).kill(stranger)
    assert server.requests == []


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


def test_a_submit_that_fails_before_tells_why(server: Server, tmp_path: Path) -> None:
    with pytest.raises(SubmitFailed, match="no such service account"):
        runner(server).start(submit(tmp_path, "sys.exit('no such service account')"), TOKEN)
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


@pytest.mark.parametrize("instead", [status(401, "Unauthorized"), status(403, "Forbidden"), Answer(500), Answer(404)])
def test_nobody_claims_that_there_is_no_driver_without_an_answer(server: Server, instead: Answer) -> None:
    server.instead = instead

    with pytest.raises(RunnerError, match=f"HTTP {instead.status}"):
        runner(server).find(TOKEN)


# --- the end


@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_a_killed_driver_is_waited_for(server: Server, cluster: Cluster, phase: str) -> None:
    cluster.add(phase)

    state = runner(server).kill(HANDLE)

    assert (state.state, state.exit_code) == (ENDED, None)
    assert "on our order" in state.detail
    assert cluster.pods == {}


def test_a_kill_works_after_re_attach(server: Server, cluster: Cluster) -> None:
    cluster.add()
    first = runner(server).find(TOKEN)
    assert first is not None

    assert runner(server).kill(Handle.from_dict(first.as_dict())).state == ENDED
    assert cluster.pods == {}


def test_a_kill_of_a_pod_that_vanished_says_so(server: Server) -> None:
    assert runner(server).kill(HANDLE).state == VANISHED


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


def test_a_kill_does_not_wait_for_ever(server: Server, cluster: Cluster) -> None:
    cluster.obedient = False
    dying(cluster, -10)

    state = runner(server).kill(HANDLE, wait=0.2)

    assert (state.state, state.detail) == (RUNNING, "is being deleted")


def test_a_kill_whose_end_no_node_confirms_is_not_called_one(server: Server, cluster: Cluster) -> None:
    cluster.obedient = False
    dying(cluster, 60)

    assert runner(server).kill(HANDLE, wait=0.2).state == UNKNOWN


def test_without_a_wait_only_the_order_is_sent(server: Server, cluster: Cluster) -> None:
    cluster.add()

    assert runner(server).kill(HANDLE, wait=0).live
    assert [request.method for request in server.requests] == ["GET", "DELETE"]
    assert cluster.pods == {}


@pytest.mark.parametrize("code", [401, 403])
def test_a_kill_that_is_refused_names_what_to_do(server: Server, cluster: Cluster, code: int) -> None:
    """Airflow's hook notes it in the log, and the driver runs on."""
    cluster.add()
    server.handle = lambda request: (
        cluster.answer(request) if request.method == "GET" else status(code, "Forbidden", "cannot delete pods")
    )

    with pytest.raises(
        RunnerError, match=f"cannot delete pods.*can-i delete pods.*kubectl delete pod -n streams {NAME}"
    ):
        runner(server).kill(HANDLE)
    assert len(server.requests) == 2, "asked again, though the answer will be the same"


def test_a_kill_that_does_not_arrive_is_an_error(server: Server) -> None:
    server.answers.clear()

    with pytest.raises(RunnerError, match=f"pod streams:{NAME} was not deleted, it may still run.*does not answer"):
        runner(server, timeout=0.1).kill(HANDLE, wait=0)


def test_a_kill_is_ordered_again_while_there_is_time(server: Server, cluster: Cluster) -> None:
    cluster.add()
    failing = iter([Answer(503)])
    server.handle = lambda request: next(failing, None) or cluster.answer(request)

    assert runner(server).kill(HANDLE).state == ENDED


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

    with pytest.raises(RunnerError, match="with the pod's service account"):
        KubernetesRunner.connect("streams")


def test_a_missing_client_library_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's hook raises a NameError."""
    monkeypatch.setitem(sys.modules, "kubernetes", None)

    with pytest.raises(CkptError, match=r"pip install 'airflow-ckpt\[kubernetes\]'"):
        KubernetesRunner.connect("streams")


def test_a_handle_leads_into_no_other_namespace(server: Server) -> None:
    """It is noted beside the checkpoint, where others may write, and our account may reach further than they do."""
    handle = Handle("kubernetes", f"payroll:{NAME}", TOKEN)

    assert runner(server).look(handle).state == UNKNOWN
    with pytest.raises(RunnerError, match="not in our namespace 'streams'"):
        runner(server).kill(handle)
    assert "payroll" in runner(server).log_tail(handle)
    assert server.requests == []
