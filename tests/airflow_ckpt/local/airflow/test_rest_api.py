"""The REST client against a small server that answers as Airflow does."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.airflow import rest_api
from airflow_ckpt.local.airflow.rest_api import AirflowApi
from airflow_ckpt.local.processes.ports import free_port
from tests.support.dag_runs import task_log

pytestmark = pytest.mark.unit


class FakeAirflow(BaseHTTPRequestHandler):
    """Gives out numbered tokens and takes only the newest."""

    tokens: ClassVar[int] = 0

    #: What happens to the next orders to start a run: carried out in silence, refused, or carried out.
    orders: ClassVar[list[str]] = []
    runs: ClassVar[list[str]] = []

    def do_PATCH(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, {})

    def _start_a_run(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fate = self.orders.pop(0) if self.orders else "done"
        if fate == "lost":
            time.sleep(0.5)
        elif fate == "busy":
            self._answer(500, {"detail": "DatabaseBusy"})
        elif fate == "broken" or order["dag_run_id"] in self.runs:
            self._answer(409, {"detail": "NotUnique"})
        else:
            self.runs.append(order["dag_run_id"])
            if fate == "silent":
                time.sleep(0.5)
            else:
                self._answer(200, order)

    def do_POST(self) -> None:
        if self.path.endswith("/dagRuns"):
            return self._start_a_run()
        login = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if login["password"] != "right":
            return self._answer(401, {"detail": "BadLogin"})
        type(self).tokens += 1
        self._answer(201, {"access_token": f"token-{self.tokens}"})

    def do_GET(self) -> None:
        if "/taskInstances/" in self.path:
            self._answer_about_a_task()
            return
        if self.headers["Authorization"] != f"Bearer token-{self.tokens}":
            self._answer(401, {"detail": "Invalid JWT token"})
        elif self.path.rpartition("/")[2] in self.runs:
            self._answer(200, {})
        elif self.path == "/api/v2/dags":
            self._answer(200, {"dags": []})
        else:
            self._answer(404, {"detail": f"NotThere {self.path}"})

    def _answer_about_a_task(self) -> None:
        """A task in its third try, of which the first was never recorded."""
        number = self.path.partition("?")[0].rpartition("/")[2]
        known = {"2": "the second", "3": "the third"}
        if number == "it":
            self._answer(200, {"try_number": 3})
        elif number in known:
            self._answer(200, {"content": [{"event": known[number]}]})
        else:
            self._answer(404, {"detail": "TaskInstance not found"})

    def _answer(self, code: int, content: dict[str, Any]) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    FakeAirflow.tokens = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeAirflow)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_it_logs_in_by_itself_and_only_once(url: str) -> None:
    api = AirflowApi(url, "admin", "right")

    assert api("GET", "/dags") == api("GET", "/dags") == {"dags": []}
    assert FakeAirflow.tokens == 1


def test_a_refused_token_is_renewed(url: str) -> None:
    api = AirflowApi(url, "admin", "right")
    api("GET", "/dags")
    FakeAirflow.tokens += 1

    assert api("GET", "/dags") == {"dags": []}


@pytest.mark.parametrize("orders", [[], ["silent"], ["lost"], ["lost", "silent"], ["busy", "busy"]])
def test_a_run_is_started_once_although_the_answer_does_not_come(
    url: str, orders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest_api, "REQUEST_TIMEOUT_SECONDS", 0.2)
    FakeAirflow.orders, FakeAirflow.runs = orders, []

    assert [AirflowApi(url, "admin", "right").trigger("dag", {"a": 1})] == FakeAirflow.runs


def test_a_run_that_was_not_started_is_not_called_started(url: str) -> None:
    FakeAirflow.orders, FakeAirflow.runs = ["broken"], []

    with pytest.raises(StackError, match="409 to POST /dags/dag/dagRuns: NotUnique"):
        AirflowApi(url, "admin", "right").trigger("dag")


def test_a_database_that_stays_busy_is_an_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_api, "PAUSE_SECONDS", 0.01)
    FakeAirflow.orders, FakeAirflow.runs = ["busy"] * 10, []

    with pytest.raises(StackError, match="500 to POST /dags/dag/dagRuns: DatabaseBusy"):
        AirflowApi(url, "admin", "right").trigger("dag")
    assert len(FakeAirflow.orders) == 10 - rest_api.TRIES


def test_a_wrong_password_is_named_as_the_reason(url: str) -> None:
    with pytest.raises(StackError, match=r"\badmin\b.*BadLogin"):
        AirflowApi(url, "admin", "wrong")("GET", "/dags")


def test_an_error_names_the_request_and_airflows_reason(url: str) -> None:
    with pytest.raises(StackError, match=r"404 to GET /nowhere: NotThere /api/v2/nowhere"):
        AirflowApi(url, "admin", "right")("GET", "/nowhere")


def test_the_log_of_a_task_leaves_out_a_try_that_airflow_never_recorded(url: str) -> None:
    log = task_log(AirflowApi(url, "admin", "right"), "dag", "run", "it").splitlines()
    assert [line.split()[-1] for line in log] == ["second", "third"]


def test_without_a_server_the_error_is_one_line_and_health_is_empty() -> None:
    api = AirflowApi(f"http://127.0.0.1:{free_port()}", "admin", "right")

    assert api.health() == {}
    with pytest.raises(StackError, match=f"{re.escape(api.url)}.*ConnectionError") as caught:
        api("GET", "/dags")
    assert "\n" not in str(caught.value)


def test_a_proxy_of_the_environment_is_not_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")

    assert AirflowApi(url, "admin", "right")("GET", "/dags") == {"dags": []}
