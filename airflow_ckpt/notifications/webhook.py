"""Posts a stream's events to a web hook, for example of a chat or an alert manager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import requests
from airflow.providers.common.compat.sdk import BaseHook, BaseNotifier

from airflow_ckpt.exceptions import NotDelivered
from airflow_ckpt.notifications.events import EVENTS, TASK_FAILED

#: A short timeout: a web hook that does not answer must not delay the stream.
TIMEOUT_SECONDS = 10.0


class StreamWebhookNotifier(BaseNotifier):
    """Posts `{"event", "stream", "text", "dag", "run", "status"}` as JSON to the address in an `http` connection.

    Pass it as an operator's `notify`, and as `on_failure_callback` for all other failures of a task.

    :param http_conn_id: connection whose host is the full address; its password, if any, is sent as bearer token
    :param events: which events are posted: failed, resumed, given_up, violated, unverified, at_risk, task_failed
    :param text: the message, templated: `ckpt` holds event, stream, reason and status
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
        """Add the event if Airflow calls the notifier as a callback, because a callback's context has no event."""
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
            # The address of a chat's web hook is a secret, so it is left out; so is the cause, whose text has the address.
            raise NotDelivered(f"The web hook of connection {self.http_conn_id} did not accept the event: {failure}.")


def _post(address: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """Post the event; returns why that failed, or an empty text."""
    try:
        answer = requests.post(address, json=body, headers=headers, timeout=TIMEOUT_SECONDS)
    except requests.RequestException as e:
        return type(e).__name__
    return "" if answer.ok else f"it answered {answer.status_code} {answer.reason}"


def _of_task(context: Mapping[str, Any]) -> dict[str, Any]:
    """The event of a task that failed; no event for other callbacks."""
    ti, stream = context.get("ti"), getattr(context.get("task"), "stream", None)
    reason = f"the task {getattr(ti, 'task_id', '?')} failed: {context.get('exception') or 'see its log'}"
    # There is no exception if the scheduler failed the task, for example because its worker died.
    well = ti is None or getattr(ti, "state", None) in ("success", "skipped", "running")
    failed = context.get("exception") is not None or not well
    return {
        "event": TASK_FAILED if failed else None,
        "stream": getattr(stream, "name", None),
        "reason": reason,
        "status": None,
    }
