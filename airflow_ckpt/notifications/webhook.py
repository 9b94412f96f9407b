"""Posts a stream's events to a web hook, such as a chat's or an alert manager's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import requests
from airflow.providers.common.compat.sdk import BaseHook, BaseNotifier

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.notifications.tell import EVENTS, TASK_FAILED

#: Whoever is told must not hold the stream up.
TIMEOUT_SECONDS = 10.0


class StreamWebhookNotifier(BaseNotifier):
    """Posts `{"event", "stream", "text", "dag", "run", "status"}` as JSON to the address in an `http` connection.

    It is called by an operator's `notify`, or, for whatever else makes a task fail, as its `on_failure_callback`.

    :param http_conn_id: connection whose host is the full address; its password, if any, is sent as bearer token
    :param events: which events are posted: failed, resumed, given_up, violated, unverified, at_risk, task_failed
    :param text: the message; a template, in which `ckpt` holds event, stream, reason and status
    """

    template_fields = ("text",)

    def __init__(
        self,
        http_conn_id: str,
        events: tuple[str, ...] = EVENTS,
        text: str = "stream {{ ckpt.stream or '?' }} {{ ckpt.event }}: {{ ckpt.reason }}",
    ) -> None:
        super().__init__()
        self.http_conn_id, self.events, self.text = http_conn_id, events, text

    def _update_context(self, context: Any) -> Any:
        """As a callback of Airflow's it knows of no event of the stream."""
        context.setdefault("ckpt", _of_task(context))
        return super()._update_context(context)

    def notify(self, context: Mapping[str, Any]) -> None:
        event = context["ckpt"]
        if event["event"] not in self.events:
            return
        connection = BaseHook.get_connection(self.http_conn_id)
        headers = {"Authorization": f"Bearer {connection.password}"} if connection.password else {}
        host = connection.host or ""
        address = host if "://" in host else f"{connection.schema or 'http'}://{host}"
        if connection.port:
            address = f"{address.rstrip('/')}:{connection.port}"
        ti = context.get("ti")
        body = {**event, "text": self.text, "dag": getattr(ti, "dag_id", None), "run": getattr(ti, "run_id", None)}
        failure = _post(address, body, headers)
        if failure:
            # Without the address: a chat's holds its secret. And not as a cause: its text has the address too.
            raise CkptError(f"The web hook of connection {self.http_conn_id} was not reached: {failure}.")


def _post(address: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """What went wrong, or nothing."""
    try:
        answer = requests.post(address, json=body, headers=headers, timeout=TIMEOUT_SECONDS)
    except requests.RequestException as e:
        return type(e).__name__
    return "" if answer.ok else f"it answered {answer.status_code} {answer.reason}"


def _of_task(context: Mapping[str, Any]) -> dict[str, Any]:
    """A task that failed, as an event; anything else that a callback may be about is none."""
    ti, stream = context.get("ti"), getattr(context.get("task"), "stream", None)
    reason = f"the task {getattr(ti, 'task_id', '?')} failed: {context.get('exception') or 'see its log'}"
    # Airflow gives no exception where the scheduler has failed the task, for instance for a worker that died.
    well = ti is None or getattr(ti, "state", None) in ("success", "skipped", "running")
    failed = context.get("exception") is not None or not well
    return {
        "event": TASK_FAILED if failed else None,
        "stream": getattr(stream, "name", None),
        "reason": reason,
        "status": None,
    }
