"""The web hook: who is told what, with the token in a header and nowhere else."""

from __future__ import annotations

import json
import traceback
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from airflow.sdk import Connection
from airflow.sdk.bases.hook import BaseHook

from airflow_ckpt.exceptions import NotDelivered
from airflow_ckpt.notifications.webhook import TIMEOUT_SECONDS, StreamWebhookNotifier
from tests.airflow_ckpt.supervision.samples import a_status, a_stream

pytestmark = pytest.mark.unit


class Posts(list[tuple[str, dict[str, Any]]]):
    """What was posted, and the status code that answers."""

    code = 200


@pytest.fixture
def posts(monkeypatch: pytest.MonkeyPatch) -> Posts:
    found = Posts()

    def post(address: str, **values: Any) -> requests.Response:
        found.append((address, values))
        response = requests.Response()
        response.status_code = found.code
        return response

    monkeypatch.setattr(requests, "post", post)
    return found


def known(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    connection = Connection(conn_id="chat", conn_type="http", **values)
    monkeypatch.setattr(BaseHook, "get_connection", staticmethod(lambda name: connection))


def context(event: str = "failed", **values: Any) -> dict[str, Any]:
    about = {"event": event, "stream": "orders", "reason": "Kafka is away", "status": a_status("FAILED").as_dict()}
    return {"ckpt": about, "ti": SimpleNamespace(dag_id="dag", run_id="run"), **values}


def tell(notifier: StreamWebhookNotifier, about: dict[str, Any]) -> None:
    """As an operator does."""
    notifier(about)


@pytest.mark.parametrize(
    ("values", "address"),
    [
        ({"host": "https://chat.example/hook?x=1"}, "https://chat.example/hook?x=1"),
        ({"host": "chat.example"}, "http://chat.example"),
        ({"host": "chat.example", "schema": "https", "port": 8443}, "https://chat.example:8443"),
    ],
)
def test_an_event_is_posted_to_the_address_in_the_connection(
    posts: Posts, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], address: str
) -> None:
    known(monkeypatch, **values)
    tell(StreamWebhookNotifier("chat"), context())
    [(posted_to, posted)] = posts
    assert (posted_to, posted["timeout"], posted["headers"]) == (address, TIMEOUT_SECONDS, {})
    body = json.loads(json.dumps(posted["json"]))
    assert body["text"] == "stream orders failed: Kafka is away"
    assert (body["event"], body["stream"], body["dag"], body["run"]) == ("failed", "orders", "dag", "run")
    assert body["status"]["state"] == "FAILED"


def test_a_password_is_sent_as_bearer_token_and_nowhere_else(posts: Posts, monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, host="https://chat.example", password="hunter2")
    tell(StreamWebhookNotifier("chat"), context())
    [(address, posted)] = posts
    assert posted["headers"] == {"Authorization": "Bearer hunter2"}
    assert "hunter2" not in address + json.dumps(posted["json"])


def test_only_the_events_that_were_asked_for_are_posted(posts: Posts, monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, host="https://chat.example")
    notifier = StreamWebhookNotifier("chat", events=("given_up",))
    for event in ("failed", "resumed", "given_up"):
        tell(notifier, context(event))
    assert [posted["json"]["event"] for _, posted in posts] == ["given_up"]


def test_a_callback_that_is_not_about_a_failure_posts_nothing(posts: Posts, monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, host="https://chat.example")
    for ti in (None, *(SimpleNamespace(state=state) for state in ("success", "skipped", "running"))):
        tell(StreamWebhookNotifier("chat"), {"ti": ti})
    assert posts == []


def test_as_a_callback_it_tells_of_a_task_that_failed(posts: Posts, monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, host="https://chat.example")
    ti = SimpleNamespace(dag_id="watchdog", task_id="orders.status", run_id="run")
    failed = {"ti": ti, "task": SimpleNamespace(stream=a_stream()), "exception": OSError("S3 is away")}
    tell(StreamWebhookNotifier("chat"), dict(failed))
    tell(StreamWebhookNotifier("chat"), {**failed, "task": SimpleNamespace()})
    tell(StreamWebhookNotifier("chat", events=("failed",)), dict(failed))
    # So it comes from the scheduler, when a worker died.
    tell(StreamWebhookNotifier("chat"), {"ti": ti, "task": SimpleNamespace(stream=a_stream())})
    assert [(posted["json"]["event"], posted["json"]["dag"], posted["json"]["text"]) for _, posted in posts] == [
        ("task_failed", "watchdog", "stream orders task_failed: the task orders.status failed: S3 is away"),
        ("task_failed", "watchdog", "stream ? task_failed: the task orders.status failed: S3 is away"),
        ("task_failed", "watchdog", "stream orders task_failed: the task orders.status failed: see its log"),
    ]


def test_an_answer_that_refuses_is_an_error_without_the_address(posts: Posts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat's address holds its secret, and errors are logged."""
    known(monkeypatch, host="https://chat.example/hooks/hunter2")
    posts.code = 403
    with pytest.raises(NotDelivered, match=r"chat.*\b403\b") as caught:
        StreamWebhookNotifier("chat").notify({**context()})
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_a_web_hook_that_is_away_is_an_error_without_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch, host="http://127.0.0.1:1/hooks/hunter2")
    with pytest.raises(NotDelivered, match=r"chat.*ConnectionError") as caught:
        StreamWebhookNotifier("chat").notify({**context()})
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
