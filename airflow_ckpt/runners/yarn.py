"""Drivers on YARN, started in cluster mode and looked after through the ResourceManager's REST API."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import requests

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
#: Part of a URL, and noted where others may write.
_APPLICATION_ID = re.compile(r"application_\d+_\d+")
# A cluster has two or three ResourceManagers; more names than this are a circle.
_MOST_MANAGERS = 8


class YarnRunner:
    """Runs drivers on YARN. `rm_url` is the ResourceManager's web address; several, with commas between, are one cluster."""

    kind = "yarn"

    def __init__(
        self,
        rm_url: str,
        auth: Any = None,
        timeout: float = 10.0,
        *,
        user: str = "",
        submit_timeout: float = SUBMIT_TIMEOUT_S,
        settle: float = SETTLE_S,
    ) -> None:
        self._urls = tuple(url.strip().rstrip("/") for url in rm_url.split(",") if url.strip())
        wrong = [url for url in self._urls if urlsplit(url).scheme not in ("http", "https")]
        if wrong or not self._urls:
            raise RunnerError(f"rm_url is {rm_url!r}; it must look like http://resourcemanager:8088")
        self._auth = auth
        self._timeout = timeout
        #: Who we are on a cluster without Kerberos, which believes what it is told.
        self._user = user
        self._submit_timeout = submit_timeout
        self._settle = settle

    def properties(self, token: str) -> Mapping[str, str]:
        return {
            "spark.yarn.tags": _tag(token),
            "spark.yarn.submit.waitAppCompletion": "false",
            # A second attempt by YARN would restart the stream behind our restart strategy's back.
            "spark.yarn.maxAppAttempts": "1",
        }

    def start(self, launch: Launch, token: str) -> Handle:
        return start_driver(launch, token, self.find, timeout=self._submit_timeout, settle=self._settle)

    def find(self, token: str) -> Handle | None:
        answer = self._ask("GET", APPS, params={"applicationTags": _tag(token)})
        if answer.status_code != 200:
            raise RunnerError(_complaint(answer))
        apps = (_json(answer).get("apps") or {}).get("app") or []
        ours = [app for app in apps if _tag(token) in _tags(app, otherwise=_tag(token))]
        # One token is given to one spark-submit; should there be two all the same, the living one matters.
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
        deadline = time.monotonic() + wait
        answer = self._order_to_end(handle, deadline)
        if _says_not_found(answer):
            return _gone(handle)
        if answer.status_code not in (200, 202):
            raise RunnerError(
                f"{handle.id} was not ended: {_complaint(answer)}. `yarn application -kill {handle.id}` does the same"
            )
        if wait <= 0:
            return DriverState(RUNNING, "YARN accepted the kill; its end was not waited for")
        while True:
            state = self.look(handle)
            if state.state in (ENDED, VANISHED) or time.monotonic() >= deadline:
                return state
            time.sleep(POLL_S)

    def log_tail(self, handle: Handle, lines: int = 50) -> str:
        try:
            app = self._app(handle) or {}
        except RunnerError:
            app = {}
        command = f"`yarn logs -applicationId {handle.id}`"
        where = app.get("amContainerLogs")
        return f"see {where} ({command} once it has ended)" if where else f"see {command}"

    def _order_to_end(self, handle: Handle, deadline: float) -> requests.Response:
        while True:
            try:
                return self._ask("PUT", f"{APPS}/{handle.id}/state", json={"state": "KILLED"})
            except RunnerError as error:
                if time.monotonic() >= deadline:
                    raise RunnerError(
                        f"the order to end {handle.id} did not arrive, it may still run: {error}"
                    ) from error
                time.sleep(POLL_S)

    def _app(self, handle: Handle) -> dict[str, Any] | None:
        self._check(handle)
        answer = self._ask("GET", f"{APPS}/{handle.id}")
        if _says_not_found(answer):
            return None
        if answer.status_code != 200:
            raise RunnerError(_complaint(answer))
        app = _json(answer).get("app")
        if not isinstance(app, dict):
            raise RunnerError(f"{answer.url} answers without an application: {answer.text[:200]!r}")
        # An id may come from where others can write: another application is none of ours, whatever we may do to it.
        return app if _tag(handle.token) in _tags(app, otherwise=_tag(handle.token)) else None

    def _state(self, app: Mapping[str, Any]) -> DriverState:
        name, final = str(app.get("state")), str(app.get("finalStatus"))
        state = _STATES.get(name, UNKNOWN)
        words = f"{name}, final status {final}" if state == ENDED else name
        said = str(app.get("diagnostics") or "").strip()
        url = str(app.get("trackingUrl") or "")
        finished = app.get("finishedTime")
        return DriverState(
            state,
            f"{words}: {said}" if said else words,
            # YARN keeps no exit code of a driver.
            (0 if (name, final) == ("FINISHED", "SUCCEEDED") else 1) if state == ENDED else None,
            url if url.startswith("http") else f"{self._urls[0]}/cluster/app/{app.get('id')}",
            finished / 1000 if state == ENDED and finished else None,
        )

    def _check(self, handle: Handle) -> None:
        if handle.kind != self.kind:
            raise RunnerError(f"{handle.id} is a driver of the runner {handle.kind!r}, not of {self.kind!r}")
        if not _APPLICATION_ID.fullmatch(handle.id):
            raise RunnerError(f"{handle.id!r} is not the id of a YARN application")

    def _ask(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, json: Any = None
    ) -> requests.Response:
        """The answer of the active ResourceManager, whatever it says. Raises RunnerError if none of them answers."""
        left, asked, problems = deque(self._urls), set[str](), list[str]()
        while left and len(asked) < _MOST_MANAGERS:
            base = left.popleft()
            if base in asked:
                continue
            asked.add(base)
            try:
                answer = self._request(method, base + path, params, json)
            except requests.RequestException as error:
                problems.append(f"{base} does not answer: {_in_short(error)}")
                continue
            active, is_redirect = _sent_to(answer, path)
            if active:
                problems.append(f"{base} is a standby and names {active}")
                left.appendleft(active)
            elif is_redirect or answer.status_code >= 500:
                problems.append(_complaint(answer))
            else:
                # The next question goes to this one first, and not into the time-out of one that is down.
                self._urls = (base, *(url for url in self._urls if url != base))
                return answer
        raise RunnerError("no ResourceManager answers: " + "; ".join(problems))

    def _request(self, method: str, url: str, params: Mapping[str, str] | None, json: Any) -> requests.Response:
        return requests.request(
            method,
            url,
            params={**(params or {}), **({"user.name": self._user} if self._user else {})},
            json=json,
            auth=self._auth,
            timeout=self._timeout,
            headers={"Accept": "application/json"},
            # We follow ourselves: on its own, requests would drop the credentials on the way to another host.
            allow_redirects=False,
        )


def _tag(token: str) -> str:
    # YARN stores tags in lower case, and then compares them as they are.
    return f"ckpt-{token}".lower()


def _tags(app: Mapping[str, Any], otherwise: str) -> list[str]:
    """An application's tags. A ResourceManager that shows none to us has still chosen by them."""
    return str(app.get("applicationTags") or otherwise).lower().split(",")


def _gone(handle: Handle) -> DriverState:
    return DriverState(VANISHED, f"YARN knows no application {handle.id} (any more)")


def _says_not_found(answer: requests.Response) -> bool:
    """Whether it is the ResourceManager that knows no such application, and not some web server that knows no such page."""
    return answer.status_code == 404 and "NotFoundException" in answer.text


def _sent_to(answer: requests.Response, path: str) -> tuple[str, bool]:
    """The ResourceManager that a standby names, and whether we were sent away at all (maybe to a login page)."""
    refresh = answer.headers.get("Refresh", "")
    is_redirect = 300 <= answer.status_code < 400 or bool(refresh)
    target = urlsplit(answer.headers.get("Location") or refresh.partition("url=")[2].strip())
    if not is_redirect or target.scheme not in ("http", "https") or not target.path.endswith(path):
        return "", is_redirect
    return f"{target.scheme}://{target.netloc}{target.path.removesuffix(path)}", True


def _json(answer: requests.Response) -> dict[str, Any]:
    try:
        value = answer.json()
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise RunnerError(f"{answer.url} does not answer as a ResourceManager does: {answer.text[:200]!r}")
    return value


def _complaint(answer: requests.Response) -> str:
    said = f"{answer.url} answers HTTP {answer.status_code}"
    if answer.status_code in (401, 403):
        return (
            f"{said}: YARN does not let us in. With Kerberos, pass `auth` (HTTPKerberosAuth of requests-kerberos) and have "
            "a valid ticket (`klist`, `kinit`); without, pass `user`: the one who submitted, or an administrator"
        )
    if answer.status_code == 404:
        return f"{said}, but not as a ResourceManager does: is that its address?"
    if 300 <= answer.status_code < 400:
        return (
            f"{said} with a redirect to {answer.headers.get('Location') or 'no address: no ResourceManager is active'}"
        )
    return f"{said}: {answer.text[:200]!r}"


def _in_short(error: requests.RequestException) -> str:
    kind = "time-out" if isinstance(error, requests.Timeout) else type(error).__name__
    return f"{kind} ({error})"
