"""Drivers on Kubernetes: one pod each, found by a label and judged by its driver container."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from urllib3.exceptions import HTTPError

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.runners.base import (
    ENDED,
    RUNNING,
    UNKNOWN,
    VANISHED,
    WAITING,
    DriverState,
    Handle,
    Launch,
    RunnerError,
)
from airflow_ckpt.runners.submit import POLL_S, SETTLE_S, SUBMIT_TIMEOUT_S, start_driver

LABEL = "ckpt-token"
#: Spark's own name; a pod template may give another.
DRIVER_CONTAINER = "spark-kubernetes-driver"
#: Long enough for Spark to close its transactions. Never 0: then Kubernetes forgets the pod while it may still run.
GRACE_S = 10
_LOG_BYTES = 1_000_000


class KubernetesRunner:
    """Runs drivers as pods of one namespace. `api` is a `kubernetes.client.CoreV1Api`; `connect` makes one."""

    kind = "kubernetes"

    def __init__(
        self,
        namespace: str,
        api: Any,
        timeout: float = 10.0,
        *,
        container: str = DRIVER_CONTAINER,
        submit_timeout: float = SUBMIT_TIMEOUT_S,
        settle: float = SETTLE_S,
    ) -> None:
        self._namespace = namespace
        self._api = api
        self._timeout = timeout
        self._container = container
        self._submit_timeout = submit_timeout
        self._settle = settle

    @classmethod
    def connect(
        cls,
        namespace: str,
        in_cluster: bool | None = None,
        config_file: str | None = None,
        context: str | None = None,
        **options: Any,
    ) -> KubernetesRunner:
        """A runner for the cluster of a kubeconfig, or for the one we run in (the default inside a pod)."""
        try:
            from kubernetes import client, config
        except ImportError as error:
            raise CkptError("Kubernetes needs its client library: pip install 'airflow-ckpt[kubernetes]'") from error
        if in_cluster is None:
            in_cluster = not config_file and not context and "KUBERNETES_SERVICE_HOST" in os.environ
        settings = client.Configuration()
        try:
            if in_cluster:
                config.load_incluster_config(client_configuration=settings)
            else:
                config.load_kube_config(config_file, context, settings, persist_config=False)
        except (config.ConfigException, OSError) as error:
            source = "the pod's service account" if in_cluster else config_file or "kubeconfig"
            raise RunnerError(
                f"cannot connect to Kubernetes with {source}: {error}; try `kubectl cluster-info`"
            ) from error
        # Who asks decides whether to ask again; three silent repetitions would make each time-out four times as long.
        settings.retries = 0
        return cls(namespace, client.CoreV1Api(client.ApiClient(settings)), **options)

    def properties(self, token: str) -> Mapping[str, str]:
        return {
            f"spark.kubernetes.driver.label.{LABEL}": token,
            "spark.kubernetes.submission.waitAppCompletion": "false",
            # Spark must put the pod where we look for it.
            "spark.kubernetes.namespace": self._namespace,
        }

    def start(self, launch: Launch, token: str) -> Handle:
        return start_driver(launch, token, self.find, timeout=self._submit_timeout, settle=self._settle)

    def find(self, token: str) -> Handle | None:
        pods = self._ask("list_namespaced_pod", self._namespace, label_selector=f"{LABEL}={token}").items
        # One token is given to one spark-submit; should there be two all the same, the living one matters.
        pods.sort(key=lambda pod: (self._state(pod).live, pod.metadata.creation_timestamp))
        return Handle(self.kind, f"{self._namespace}:{pods[-1].metadata.name}", token) if pods else None

    def look(self, handle: Handle) -> DriverState:
        try:
            pod = self._pod(handle)
        except RunnerError as error:
            return DriverState(UNKNOWN, str(error))
        return self._state(pod) if pod is not None else _gone(handle)

    def kill(self, handle: Handle, *, wait: float = 30.0) -> DriverState:
        deadline = time.monotonic() + wait
        over = self._order_to_end(handle, deadline)
        if over is not None:
            return over
        if wait <= 0:
            return DriverState(RUNNING, "Kubernetes accepted the deletion; its end was not waited for")
        while True:
            state = self.look(handle)
            if state.state == VANISHED:
                return DriverState(ENDED, f"pod {handle.id} was deleted on our order")
            if state.state == ENDED or time.monotonic() >= deadline:
                return state
            time.sleep(POLL_S)

    def log_tail(self, handle: Handle, lines: int = 50) -> str:
        namespace, _, name = handle.id.partition(":")
        try:
            self._check(handle)
            answer = self._ask(
                "read_namespaced_pod_log",
                name,
                namespace,
                container=self._container,
                tail_lines=lines,
                limit_bytes=_LOG_BYTES,
                # Else the client takes a log that looks like JSON for JSON, and prints Python instead.
                _preload_content=False,
            )
            return str(answer.data.decode(errors="replace"))
        except (RunnerError, HTTPError) as error:
            return f"no log from here ({error}); try `kubectl logs -n {namespace} {name} -c {self._container}`"

    def _order_to_end(self, handle: Handle, deadline: float) -> DriverState | None:
        """Delete the pod, unless it is over already: then how it ended."""
        while True:
            try:
                return self._delete(handle)
            except _ApiError as error:
                if error.status in (401, 403) or time.monotonic() >= deadline:
                    raise RunnerError(
                        f"pod {handle.id} was not deleted, it may still run: {error}. "
                        f"`kubectl delete pod -n {handle.id.replace(':', ' ')}` does the same"
                    ) from error
                time.sleep(POLL_S)

    def _delete(self, handle: Handle) -> DriverState | None:
        pod = self._pod(handle)
        if pod is None:
            return _gone(handle)
        state = self._state(pod)
        if state.state == ENDED:
            # Its log is still of use.
            return state
        try:
            self._ask(
                "delete_namespaced_pod",
                pod.metadata.name,
                pod.metadata.namespace,
                # This pod and no later one that got its name.
                body={"gracePeriodSeconds": GRACE_S, "preconditions": {"uid": pod.metadata.uid}},
            )
        except _ApiError as error:
            if not error.says_not_found and error.status != 409:
                raise
            return _gone(handle)
        return None

    def _pod(self, handle: Handle) -> Any:
        """The pod of this very driver, or None if the API server says that there is none."""
        self._check(handle)
        namespace, _, name = handle.id.partition(":")
        try:
            pod = self._ask("read_namespaced_pod", name, namespace)
        except _ApiError as error:
            if error.says_not_found:
                return None
            raise
        # With spark.kubernetes.driver.pod.name each run's pod has the same name.
        return pod if (pod.metadata.labels or {}).get(LABEL) == handle.token else None

    def _check(self, handle: Handle) -> None:
        """A handle is noted where others may write: it must not lead into another namespace that our account reaches."""
        if handle.kind != self.kind:
            raise RunnerError(f"{handle.id} is a driver of the runner {handle.kind!r}, not of {self.kind!r}")
        if handle.id.partition(":")[0] != self._namespace:
            raise RunnerError(
                f"{handle.id} is not in our namespace {self._namespace!r}: see the Spark connection's extra field"
            )

    def _state(self, pod: Any) -> DriverState:
        status = pod.status
        container = self._driver_container(pod)
        terminated = container and container.state and container.state.terminated
        # Sidecars keep a pod Running when its driver is long gone: the driver's container decides, then the pod.
        if terminated or status.phase in ("Succeeded", "Failed"):
            return _ended(status, terminated)
        if _is_overdue(pod.metadata):
            # Its node may be gone, or only cut off: then the driver's heartbeat in the run record still moves.
            since = pod.metadata.deletion_timestamp.isoformat(timespec="seconds")
            return DriverState(UNKNOWN, f"its deletion was due by {since}, and no node has confirmed its end")
        waiting = container and container.state and container.state.waiting
        if status.phase == "Pending" or (status.phase == "Running" and waiting):
            return DriverState(WAITING, _why_it_waits(status))
        if status.phase == "Running":
            return DriverState(RUNNING, "is being deleted" if pod.metadata.deletion_timestamp else "")
        return DriverState(UNKNOWN, f"the pod's phase is {status.phase}: its node does not report")

    def _driver_container(self, pod: Any) -> Any:
        statuses = pod.status.container_statuses or []
        if len(statuses) == 1 and len(pod.spec.containers) == 1:
            return statuses[0]
        return next((one for one in statuses if one.name == self._container), None)

    def _ask(self, method: str, *names: str, **options: Any) -> Any:
        from kubernetes.client.exceptions import ApiException
        from kubernetes.config import ConfigException

        try:
            return getattr(self._api, method)(*names, _request_timeout=self._timeout, **options)
        except ApiException as error:
            raise _ApiError(int(error.status or 0), str(error.reason or ""), error.body or "") from error
        except (HTTPError, OSError, ValueError, ConfigException) as error:
            raise _ApiError(0, f"{type(error).__name__} ({error})") from error


class _ApiError(RunnerError):
    """What the API server said instead of an answer; status 0 if it said nothing."""

    def __init__(self, status: int, reason: str, body: str | bytes = "") -> None:
        self.status = status
        self._body = body
        super().__init__(self._complaint(reason))

    @property
    def says_not_found(self) -> bool:
        """Whether it is the API server that knows no such pod, and not some web server that knows no such page."""
        return self.status == 404 and (not self._body or self._said().get("reason") == "NotFound")

    def _complaint(self, reason: str) -> str:
        if not self.status:
            return f"the Kubernetes API does not answer: {reason}"
        said = f"the Kubernetes API answers HTTP {self.status} ({self._said().get('message') or reason})"
        if self.status in (401, 403):
            return f"{said}: our account needs get, list and delete on pods; try `kubectl auth can-i delete pods`"
        return said

    def _said(self) -> dict[str, Any]:
        try:
            said = json.loads(self._body or "{}")
        except ValueError:
            return {}
        return said if isinstance(said, dict) and said.get("kind", "Status") == "Status" else {}


def _gone(handle: Handle) -> DriverState:
    return DriverState(VANISHED, f"Kubernetes knows no pod {handle.id} with our token (any more)")


def _ended(status: Any, terminated: Any) -> DriverState:
    """How it ended. A pod that Kubernetes took down (evicted, node shut down) failed, whatever its driver returned."""
    taken_down = status.phase == "Failed" and bool(status.reason)
    last = terminated or _failed_init_container(status)
    code = last.exit_code if last else 0 if status.phase == "Succeeded" else 1
    words = [status.reason, status.message, *((last.reason, last.message) if last else ())]
    detail = ": ".join(str(word).strip() for word in words if word) or str(status.phase)
    return DriverState(
        ENDED,
        f"{detail} (exit code {code})",
        (code or 1) if taken_down else code,
        ended_at=last.finished_at.timestamp() if last and last.finished_at else None,
    )


def _is_overdue(metadata: Any) -> bool:
    """Whether a pod was to be deleted and should be gone, its grace period twice over.

    Kubernetes writes the end of the grace period as the time of deletion; once more is for clocks that differ.
    """
    if metadata.deletion_timestamp is None:
        return False
    grace = metadata.deletion_grace_period_seconds
    slack = timedelta(seconds=GRACE_S if grace is None else max(grace, GRACE_S))
    return bool(datetime.now(UTC) > metadata.deletion_timestamp + slack)


def _failed_init_container(status: Any) -> Any:
    """Why the driver never started, if an earlier container of its pod failed."""
    over = (one.state.terminated for one in status.init_container_statuses or [] if one.state)
    return next((one for one in over if one and one.exit_code), None)


def _why_it_waits(status: Any) -> str:
    """The first container that waits for something, or why there is no node for the pod."""
    for one in [*(status.init_container_statuses or []), *(status.container_statuses or [])]:
        if one.state and one.state.waiting and one.state.waiting.reason != "PodInitializing":
            return ": ".join(word for word in (one.state.waiting.reason, one.state.waiting.message) if word)
    for condition in status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return ": ".join(word for word in (condition.reason, condition.message) if word)
    return str(status.phase)
