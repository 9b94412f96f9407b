"""Requests to the Kubernetes API server through the kubernetes client: connect, call, and interpret errors."""

from __future__ import annotations

import json
import os
from typing import Any

from urllib3.exceptions import HTTPError

from airflow_ckpt.exceptions import KubernetesApiError, NotInstalled, RunnerError


def connect(in_cluster: bool | None, config_file: str | None, context: str | None) -> Any:
    """A `CoreV1Api` for the cluster of a kubeconfig, or for the cluster of Airflow's own pod (the default inside a pod)."""
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise NotInstalled("Kubernetes needs its client library: pip install 'airflow-ckpt[kubernetes]'") from error
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
        raise RunnerError(f"cannot connect to Kubernetes with {source}: {error}; try `kubectl cluster-info`") from error
    # The caller decides whether to repeat a request; three repetitions in the client would make each timeout four times as long.
    settings.retries = 0
    return client.CoreV1Api(client.ApiClient(settings))


def ask(api: Any, method: str, *names: str, timeout: float, **options: Any) -> Any:
    """Call a method of the API. Raises KubernetesApiError if the API answers with an error or does not answer."""
    from kubernetes.client.exceptions import ApiException
    from kubernetes.config import ConfigException

    try:
        return getattr(api, method)(*names, _request_timeout=timeout, **options)
    except ApiException as error:
        raise _error_of(int(error.status or 0), str(error.reason or ""), error.body or "") from error
    except (HTTPError, OSError, ValueError, ConfigException) as error:
        raise _error_of(0, f"{type(error).__name__} ({error})", "") from error


def _error_of(status: int, reason: str, body: str | bytes) -> KubernetesApiError:
    """The error for an answer. A 404 without the body of an API server comes from another web server."""
    answer = _status_object(body)
    is_not_found = status == 404 and (not body or answer.get("reason") == "NotFound")
    return KubernetesApiError(_complaint(status, answer.get("message") or reason), status, is_not_found)


def _complaint(status: int, reason: str) -> str:
    if not status:
        return f"the Kubernetes API does not answer: {reason}"
    text = f"the Kubernetes API answers HTTP {status} ({reason})"
    if status in (401, 403):
        return (
            f"{text}: the connection's account needs get, list and delete on pods; try `kubectl auth can-i delete pods`"
        )
    return text


def _status_object(body: str | bytes) -> dict[str, Any]:
    """The status object in the body of an API server's error."""
    try:
        found = json.loads(body or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) and found.get("kind", "Status") == "Status" else {}
