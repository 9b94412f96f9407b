"""The events of a stream, and how they are sent to notifiers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from airflow.providers.common.compat.sdk import BaseNotifier

from airflow_ckpt.metrics import count
from airflow_ckpt.streams.status import StreamStatus

#: In this order: the stream broke; it was restarted; it will not be restarted again; its sink has faults; it could not be
#: verified; a restart would be refused, or the stream is too far behind; a task failed, for any reason.
STREAM_FAILED, RESUMED, GIVEN_UP, VIOLATED, UNVERIFIED, AT_RISK, TASK_FAILED = EVENTS = (
    "failed", "resumed", "given_up", "violated", "unverified", "at_risk", "task_failed",
)  # fmt: skip

Notify = Callable[[Any], Any]
log = logging.getLogger(__name__)


def send_event(
    notifiers: Sequence[Notify],
    context: Mapping[str, Any],
    event: str,
    stream: str,
    reason: str,
    status: StreamStatus | None = None,
) -> None:
    """Count the event and call the notifiers. The error of a notifier is logged; it does not affect the stream."""
    count(event, stream)
    about = {"event": event, "stream": stream, "reason": reason, "status": status.as_dict() if status else None}
    for notifier in notifiers:
        try:
            # Airflow's notifiers render their templates in place; a copy keeps the templates for the next event.
            call = copy(notifier) if isinstance(notifier, BaseNotifier) else notifier
            call({**context, "ckpt": about})
        except Exception:
            log.exception("a notifier failed")
