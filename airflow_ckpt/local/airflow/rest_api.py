"""A small client of Airflow's REST API: for the demo and the tests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import requests
from tenacity import Retrying, retry_if_exception_type, retry_if_result, stop_after_attempt, wait_fixed

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.processes.waiting import wait_for

FINAL_STATES = ("success", "failed")
# An answer takes milliseconds; under load, with SQLite's single writer, seconds.
REQUEST_TIMEOUT_SECONDS = 30.0
#: How many times a request is sent, if it may be repeated.
TRIES = 4
PAUSE_SECONDS = 0.5


class AirflowApi:
    """Calls the API at `url` as one user: `api("GET", "/dags")`. It fetches a token, and a new token if that is refused."""

    def __init__(self, url: str, username: str, password: str) -> None:
        self.url = url
        self._login = {"username": username, "password": password}
        self._session = requests.Session()
        # The server is on this machine: a proxy or a .netrc must not apply.
        self._session.trust_env = False

    def __call__(
        self, method: str, path: str, json: Any = None, *, params: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a request below `/api/v2` and return its JSON answer. Raises StackError if it fails."""
        response = self._send(method, path, json=json, params=params)
        if not response.ok:
            raise _refused(method, path, response)
        answer: dict[str, Any] = response.json() if response.content else {}
        return answer

    def fetch_token(self) -> str:
        """Log in. Works as soon as the API server accepts requests."""
        try:
            response = self._session.post(f"{self.url}/auth/token", json=self._login, timeout=REQUEST_TIMEOUT_SECONDS)
        except requests.RequestException as error:
            raise StackError(f"no answer from Airflow at {self.url}: {type(error).__name__}") from error
        if not response.ok:
            raise StackError(
                f"Airflow at {self.url} refused the login of {self._login['username']}: {_detail(response)}"
            )
        token: str = response.json()["access_token"]
        self._session.headers["Authorization"] = f"Bearer {token}"
        return token

    def health(self) -> dict[str, dict[str, Any]]:
        """The state of each component; empty if Airflow does not answer. Needs no login."""
        try:
            response = self._session.get(f"{self.url}/api/v2/monitor/health", timeout=5)
            answer: dict[str, dict[str, Any]] = response.json() if response.ok else {}
        except (requests.RequestException, ValueError):
            return {}
        return answer

    def wait_for_dag(self, dag_id: str, *, deadline_s: float = 60) -> None:
        """Wait until the DAG processor has read the DAG. A file with an import error ends the wait."""

        def known() -> bool:
            if self._send("GET", f"/dags/{dag_id}").ok:
                return True
            errors = self("GET", "/importErrors")["import_errors"]
            if errors:
                last_line = str(errors[0]["stack_trace"]).strip().splitlines()[-1]
                raise StackError(f"{errors[0]['filename']} cannot be imported: {last_line}")
            return False

        wait_for(known, f"Airflow to read DAG {dag_id}", deadline_s)

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run now, unpausing the DAG, and return its run id."""
        self("PATCH", f"/dags/{dag_id}", {"is_paused": False}, params={"update_mask": "is_paused"})
        # The run id is chosen here: then a request without an answer can be repeated, and is refused if the first one succeeded.
        run_id, path = f"manual__{datetime.now(UTC).isoformat()}", f"/dags/{dag_id}/dagRuns"
        request = {"dag_run_id": run_id, "logical_date": None, "conf": dict(conf or {})}
        response = self._send("POST", path, json=request, tries=TRIES)
        if not response.ok and not (response.status_code == requests.codes.conflict and self._knows(path, run_id)):
            raise _refused("POST", path, response)
        return run_id

    def _knows(self, path: str, run_id: str) -> bool:
        return self._send("GET", f"{path}/{run_id}").ok

    def run_state(self, dag_id: str, run_id: str) -> str:
        return str(self("GET", f"/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """The state of each task of a run by task id (`task[0]` and so on if it is mapped)."""
        answer = self("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances", params={"limit": 1000})
        return {
            task["task_id"] if task["map_index"] < 0 else f"{task['task_id']}[{task['map_index']}]": task["state"]
            for task in answer["task_instances"]
        }

    def _send(self, method: str, path: str, *, tries: int | None = None, **arguments: Any) -> requests.Response:
        # Only a request that may be repeated safely is sent again; another request may have succeeded without an answer.
        tries = tries or (TRIES if method in ("GET", "PATCH") else 1)
        if "Authorization" not in self._session.headers:
            self.fetch_token()
        response = self._request(method, path, tries, **arguments)
        if response.status_code == requests.codes.unauthorized:
            self.fetch_token()
            response = self._request(method, path, tries, **arguments)
        return response

    def _request(self, method: str, path: str, tries: int, **arguments: Any) -> requests.Response:
        again = Retrying(
            stop=stop_after_attempt(tries),
            wait=wait_fixed(PAUSE_SECONDS),
            # With SQLite, two requests at the same moment can make one of them fail with "Database error".
            retry=retry_if_exception_type(requests.ReadTimeout)
            | retry_if_result(lambda answer: answer.status_code >= 500),
            retry_error_callback=lambda last: last.outcome.result() if last.outcome else None,
        )
        url = f"{self.url}/api/v2{path}"
        try:
            answer: requests.Response = again(
                self._session.request, method, url, timeout=REQUEST_TIMEOUT_SECONDS, **arguments
            )
            return answer
        except requests.RequestException as error:
            raise StackError(
                f"no answer from Airflow to {method} {path} at {self.url}: {type(error).__name__}. "
                "Is it up? `airflow-ckpt local status` shows it"
            ) from error


def _refused(method: str, path: str, response: requests.Response) -> StackError:
    return StackError(f"Airflow answered {response.status_code} to {method} {path}: {_detail(response)}")


def _detail(response: requests.Response) -> str:
    try:
        answer = response.json()
    except ValueError:
        return response.text[:200] or response.reason
    return str(answer.get("detail", answer)) if isinstance(answer, dict) else str(answer)
