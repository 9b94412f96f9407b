"""Derives the state of a driver from the status of its pod. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_ckpt.streams.driver_state import ENDED, RUNNING, UNKNOWN, WAITING, DriverState

#: Long enough for Spark to close its transactions. It must not be 0: Kubernetes would remove the pod while it may still run.
GRACE_SECONDS = 10


def state_of(pod: Any, container_name: str) -> DriverState:
    """The state of the driver in a pod, whose container has this name unless it is the only one."""
    status = pod.status
    container = _driver_container(pod, container_name)
    terminated = container and container.state and container.state.terminated
    # With sidecars, a pod stays Running after its driver has ended: so the driver's container decides first, then the pod.
    if terminated or status.phase in ("Succeeded", "Failed"):
        return _ended(status, terminated)
    if _is_overdue(pod.metadata):
        # The node may be gone or only unreachable; if the driver is alive there, its heartbeat in the run record changes.
        since = pod.metadata.deletion_timestamp.isoformat(timespec="seconds")
        return DriverState(UNKNOWN, f"its deletion was due by {since}, and no node has confirmed its end")
    waiting = container and container.state and container.state.waiting
    if status.phase == "Pending" or (status.phase == "Running" and waiting):
        return DriverState(WAITING, _why_it_waits(status))
    if status.phase == "Running":
        return DriverState(RUNNING, "is being deleted" if pod.metadata.deletion_timestamp else "")
    return DriverState(UNKNOWN, f"the pod's phase is {status.phase}: its node does not report")


def _driver_container(pod: Any, name: str) -> Any:
    statuses = pod.status.container_statuses or []
    if len(statuses) == 1 and len(pod.spec.containers) == 1:
        return statuses[0]
    return next((status for status in statuses if status.name == name), None)


def _ended(status: Any, terminated: Any) -> DriverState:
    """How the driver ended. If Kubernetes ended the pod (eviction, node shutdown), it failed, whatever its exit code."""
    was_evicted = status.phase == "Failed" and bool(status.reason)
    last = terminated or _failed_init_container(status)
    code = last.exit_code if last else 0 if status.phase == "Succeeded" else 1
    words = [status.reason, status.message, *((last.reason, last.message) if last else ())]
    detail = ": ".join(str(word).strip() for word in words if word) or str(status.phase)
    return DriverState(
        ENDED,
        f"{detail} (exit code {code})",
        (code or 1) if was_evicted else code,
        ended_at=last.finished_at.timestamp() if last and last.finished_at else None,
    )


def _is_overdue(metadata: Any) -> bool:
    """Whether a pod that is being deleted still exists after twice its grace period.

    Kubernetes writes the end of the grace period as the time of deletion; the second period allows for clocks that differ.
    """
    if metadata.deletion_timestamp is None:
        return False
    grace = metadata.deletion_grace_period_seconds
    slack = timedelta(seconds=GRACE_SECONDS if grace is None else max(grace, GRACE_SECONDS))
    return bool(datetime.now(UTC) > metadata.deletion_timestamp + slack)


def _failed_init_container(status: Any) -> Any:
    """The failed init container that prevented the driver from starting, if there is one."""
    ended = (one.state.terminated for one in status.init_container_statuses or [] if one.state)
    return next((one for one in ended if one and one.exit_code), None)


def _why_it_waits(status: Any) -> str:
    """Why the first waiting container waits, or why the pod has no node."""
    for one in [*(status.init_container_statuses or []), *(status.container_statuses or [])]:
        if one.state and one.state.waiting and one.state.waiting.reason != "PodInitializing":
            return ": ".join(word for word in (one.state.waiting.reason, one.state.waiting.message) if word)
    for condition in status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return ": ".join(word for word in (condition.reason, condition.message) if word)
    return str(status.phase)
