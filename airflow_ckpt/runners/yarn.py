"""Runs drivers on YARN: starts them in cluster mode, observes and ends them through the ResourceManager's REST API."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

import requests

from airflow_ckpt.exceptions import RunnerError
from airflow_ckpt.runners.base import POLL_SECONDS, Launch, look_until_ended
from airflow_ckpt.runners.resource_manager import ResourceManagers, body_of, complaint, is_not_found
from airflow_ckpt.runners.spark_submit import start_driver
from airflow_ckpt.streams.driver_state import ENDED, RUNNING, UNKNOWN, VANISHED, WAITING, DriverState, Handle
from airflow_ckpt.streams.submit_intent import LATE_REQUEST_SECONDS, SUBMIT_TIMEOUT_SECONDS
from ckpt_stream.protocol.deadline import Deadline

APPS = "/ws/v1/cluster/apps"

_STATES = {
    "NEW": WAITING,
    "NEW_SAVING": WAITING,
    "SUBMITTED": WAITING,
    "ACCEPTED": WAITING,
    "RUNNING": RUNNING,
    "FINISHED": ENDED,
    "FAILED": ENDED,
    "KILLED": ENDED,
}
#: The id becomes part of a URL, and comes from a file that other users may be able to write.
_APPLICATION_ID = re.compile(r"application_\d+_\d+")


class YarnRunner:
    """Runs drivers on YARN. `rm_url` has the web addresses of the cluster's ResourceManagers, separated by commas."""

    kind = "yarn"

    def __init__(
        self,
        rm_url: str,
        auth: Any = None,
        timeout: float = 10.0,
        *,
        user: str = "",
        submit_timeout: float = SUBMIT_TIMEOUT_SECONDS,
        settle: float = LATE_REQUEST_SECONDS,
    ) -> None:
        self._managers = ResourceManagers(rm_url, auth, user, timeout)
        self._submit_timeout = submit_timeout
        self._settle = settle

    def properties(self, token: str) -> Mapping[str, str]:
        return {
            "spark.yarn.tags": _tag(token),
            "spark.yarn.submit.waitAppCompletion": "false",
            # The restart strategy alone decides about restarts: YARN must not start a second attempt.
            "spark.yarn.maxAppAttempts": "1",
        }

    def start(self, launch: Launch, token: str) -> Handle:
        return start_driver(launch, token, self.find, timeout=self._submit_timeout, settle=self._settle)

    def find(self, token: str) -> Handle | None:
        answer = self._managers.request("GET", APPS, params={"applicationTags": _tag(token)})
        apps = (body_of(answer).get("apps") or {}).get("app") or []
        ours = [app for app in apps if _tag(token) in _tags(app, otherwise=_tag(token))]
        # Each spark-submit has its own token. If two applications have the same token, the application that is alive counts.
        ours.sort(key=lambda app: (_STATES.get(app.get("state", "")) != ENDED, app.get("startedTime", 0)))
        return Handle(self.kind, str(ours[-1]["id"]), token) if ours else None

    def look(self, handle: Handle) -> DriverState:
        try:
            app = self._app(handle)
        except RunnerError as error:
            return DriverState(UNKNOWN, str(error))
        return _gone(handle) if app is None else self._state(app)

    def kill(self, handle: Handle, *, wait: float = 30.0) -> DriverState:
        self._check(handle)
        deadline = Deadline.after(wait)
        answer = self._send_kill(handle, deadline)
        if is_not_found(answer):
            return _gone(handle)
        if answer.status_code not in (200, 202):
            raise RunnerError(
                f"{handle.id} was not killed: {complaint(answer)}. `yarn application -kill {handle.id}` does the same"
            )
        if wait <= 0:
            return DriverState(RUNNING, "YARN accepted the kill; the application may still be ending")
        return look_until_ended(self, handle, deadline)

    def log_tail(self, handle: Handle, lines: int = 50) -> str:
        try:
            app = self._app(handle) or {}
        except RunnerError:
            app = {}
        command = f"`yarn logs -applicationId {handle.id}`"
        where = app.get("amContainerLogs")
        return f"see {where} ({command} once it has ended)" if where else f"see {command}"

    def _send_kill(self, handle: Handle, deadline: Deadline) -> requests.Response:
        while True:
            try:
                return self._managers.request("PUT", f"{APPS}/{handle.id}/state", json={"state": "KILLED"})
            except RunnerError as error:
                if deadline.passed:
                    raise RunnerError(
                        f"the kill of {handle.id} did not reach YARN, so it may still run: {error}"
                    ) from error
                time.sleep(POLL_SECONDS)

    def _app(self, handle: Handle) -> dict[str, Any] | None:
        self._check(handle)
        answer = self._managers.request("GET", f"{APPS}/{handle.id}")
        if is_not_found(answer):
            return None
        app = body_of(answer).get("app")
        if not isinstance(app, dict):
            raise RunnerError(f"{answer.url} answers without an application: {answer.text[:200]!r}")
        # Another user may have written the id: only an application with the driver's own tag is its driver.
        return app if _tag(handle.token) in _tags(app, otherwise=_tag(handle.token)) else None

    def _state(self, app: Mapping[str, Any]) -> DriverState:
        name, final = str(app.get("state")), str(app.get("finalStatus"))
        state = _STATES.get(name, UNKNOWN)
        words = f"{name}, final status {final}" if state == ENDED else name
        diagnostics = str(app.get("diagnostics") or "").strip()
        url = str(app.get("trackingUrl") or "")
        finished = app.get("finishedTime")
        return DriverState(
            state,
            f"{words}: {diagnostics}" if diagnostics else words,
            # YARN keeps no exit code of a driver.
            (0 if (name, final) == ("FINISHED", "SUCCEEDED") else 1) if state == ENDED else None,
            url if url.startswith("http") else f"{self._managers.url}/cluster/app/{app.get('id')}",
            finished / 1000 if state == ENDED and finished else None,
        )

    def _check(self, handle: Handle) -> None:
        if handle.kind != self.kind:
            raise RunnerError(f"{handle.id} is a driver of the runner {handle.kind!r}, not of {self.kind!r}")
        if not _APPLICATION_ID.fullmatch(handle.id):
            raise RunnerError(f"{handle.id!r} is not the id of a YARN application")


def _tag(token: str) -> str:
    # YARN stores tags in lower case, but does not change the tags in a request before it compares them.
    return f"ckpt-{token}".lower()


def _tags(app: Mapping[str, Any], otherwise: str) -> list[str]:
    """An application's tags. If the ResourceManager hides them, it has still used them to select the application."""
    return str(app.get("applicationTags") or otherwise).lower().split(",")


def _gone(handle: Handle) -> DriverState:
    return DriverState(VANISHED, f"YARN has no application {handle.id} (any more)")
