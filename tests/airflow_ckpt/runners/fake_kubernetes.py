"""The pods of a namespace, and an API server that shows them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from kubernetes import client

from airflow_ckpt.runners.kubernetes import DRIVER_CONTAINER, KubernetesRunner
from airflow_ckpt.streams.driver_state import Handle
from tests.airflow_ckpt.runners.fakes import Answer, Request, Server

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


def runner(server: Server, **options: Any) -> KubernetesRunner:
    settings = client.Configuration(host=server.url)
    settings.retries = 0
    api = client.CoreV1Api(client.ApiClient(settings))
    return KubernetesRunner("streams", api, **{"timeout": 5.0, "settle": 0.0, **options})


def deleted(cluster: Cluster, since: float, grace: float | None = 10, *args: Any, **fields: Any) -> None:
    """A pod whose time to end was over so many seconds ago: Kubernetes writes the end of the grace period into it."""
    over_at = datetime.now(UTC) - timedelta(seconds=since)
    known = {"deletionTimestamp": over_at.isoformat(), "deletionGracePeriodSeconds": grace}
    cluster.add(*args, **fields)["metadata"].update(known)
