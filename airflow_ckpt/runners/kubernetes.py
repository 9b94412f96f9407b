"""Runs drivers on Kubernetes: one pod each, which is found by a label; its driver container decides the state."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from urllib3.exceptions import HTTPError

from airflow_ckpt.exceptions import KubernetesApiError, RunnerError
from airflow_ckpt.runners import api_server
from airflow_ckpt.runners.base import POLL_SECONDS, Launch, look_until_ended
from airflow_ckpt.runners.pod_state import GRACE_SECONDS, state_of
from airflow_ckpt.runners.spark_submit import start_driver
from airflow_ckpt.streams.driver_state import ENDED, RUNNING, UNKNOWN, VANISHED, DriverState, Handle
from airflow_ckpt.streams.submit_intent import LATE_REQUEST_SECONDS, SUBMIT_TIMEOUT_SECONDS
from ckpt_stream.protocol.deadline import Deadline

LABEL = "ckpt-token"
#: Spark's name of the container; a pod template may give it another name.
DRIVER_CONTAINER = "spark-kubernetes-driver"
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
        submit_timeout: float = SUBMIT_TIMEOUT_SECONDS,
        settle: float = LATE_REQUEST_SECONDS,
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
        """A runner for the cluster of a kubeconfig, or for the cluster in which Airflow's pod runs (the default inside a pod)."""
        return cls(namespace, api_server.connect(in_cluster, config_file, context), **options)

    def properties(self, token: str) -> Mapping[str, str]:
        return {
            f"spark.kubernetes.driver.label.{LABEL}": token,
            "spark.kubernetes.submission.waitAppCompletion": "false",
            # Spark must put the pod into the namespace where this runner looks for it.
            "spark.kubernetes.namespace": self._namespace,
        }

    def start(self, launch: Launch, token: str) -> Handle:
        return start_driver(launch, token, self.find, timeout=self._submit_timeout, settle=self._settle)

    def find(self, token: str) -> Handle | None:
        pods = self._ask("list_namespaced_pod", self._namespace, label_selector=f"{LABEL}={token}").items
        # Each spark-submit has its own token. If two pods have the same token, the pod that is alive counts.
        pods.sort(key=lambda pod: (self._state(pod).live, pod.metadata.creation_timestamp))
        return Handle(self.kind, f"{self._namespace}:{pods[-1].metadata.name}", token) if pods else None

    def look(self, handle: Handle) -> DriverState:
        try:
            pod = self._pod(handle)
        except RunnerError as error:
            return DriverState(UNKNOWN, str(error))
        return self._state(pod) if pod is not None else _gone(handle)

    def kill(self, handle: Handle, *, wait: float = 30.0) -> DriverState:
        deadline = Deadline.after(wait)
        before = self._delete_within(handle, deadline)
        if before is not None:
            return before
        if wait <= 0:
            return DriverState(RUNNING, "Kubernetes accepted the deletion; the pod may still be ending")
        state = look_until_ended(self, handle, deadline)
        return DriverState(ENDED, f"pod {handle.id} was deleted on request") if state.state == VANISHED else state

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
                # Otherwise the client parses a log that looks like JSON, and returns a Python object as text.
                _preload_content=False,
            )
            return str(answer.data.decode(errors="replace"))
        except (RunnerError, HTTPError) as error:
            return f"no log from here ({error}); try `kubectl logs -n {namespace} {name} -c {self._container}`"

    def _delete_within(self, handle: Handle, deadline: Deadline) -> DriverState | None:
        """Delete the pod. If its driver has already ended, return how it ended instead."""
        while True:
            try:
                return self._delete(handle)
            except KubernetesApiError as error:
                if error.status in (401, 403) or deadline.passed:
                    raise RunnerError(
                        f"pod {handle.id} was not deleted and may still run: {error}. "
                        f"`kubectl delete pod -n {handle.id.replace(':', ' ')}` does the same"
                    ) from error
                time.sleep(POLL_SECONDS)

    def _delete(self, handle: Handle) -> DriverState | None:
        pod = self._pod(handle)
        if pod is None:
            return _gone(handle)
        state = self._state(pod)
        if state.state == ENDED:
            # Deleting the pod would delete its log.
            return state
        try:
            self._ask(
                "delete_namespaced_pod",
                pod.metadata.name,
                pod.metadata.namespace,
                # Only this pod, not a later pod with the same name.
                body={"gracePeriodSeconds": GRACE_SECONDS, "preconditions": {"uid": pod.metadata.uid}},
            )
        except KubernetesApiError as error:
            if not error.is_not_found and error.status != 409:
                raise
            return _gone(handle)
        return None

    def _pod(self, handle: Handle) -> Any:
        """The driver's pod; None if the API server answers that there is no such pod."""
        self._check(handle)
        namespace, _, name = handle.id.partition(":")
        try:
            pod = self._ask("read_namespaced_pod", name, namespace)
        except KubernetesApiError as error:
            if error.is_not_found:
                return None
            raise
        # With spark.kubernetes.driver.pod.name each run's pod has the same name.
        return pod if (pod.metadata.labels or {}).get(LABEL) == handle.token else None

    def _check(self, handle: Handle) -> None:
        """Refuse a handle of another namespace: other users can write handles, and Airflow's account may have rights there."""
        if handle.kind != self.kind:
            raise RunnerError(f"{handle.id} is a driver of the runner {handle.kind!r}, not of {self.kind!r}")
        if handle.id.partition(":")[0] != self._namespace:
            raise RunnerError(
                f"{handle.id} is not in the namespace {self._namespace!r} of the Spark connection: see its extra field"
            )

    def _state(self, pod: Any) -> DriverState:
        return state_of(pod, self._container)

    def _ask(self, method: str, *names: str, **options: Any) -> Any:
        return api_server.ask(self._api, method, *names, timeout=self._timeout, **options)


def _gone(handle: Handle) -> DriverState:
    return DriverState(VANISHED, f"Kubernetes has no pod {handle.id} with the driver's token (any more)")
