"""Tells notifiers what happened to a stream."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from airflow.providers.common.compat.sdk import BaseNotifier

from airflow_ckpt.metrics import count
from airflow_ckpt.streams.status import StreamStatus

#: The stream broke; was restarted; will not be restarted any more; its sink is wrong; it could not be verified;
#: something speaks against a restart, or it is too far behind; or a task failed, for whatever reason.
FAILED, RESUMED, GIVEN_UP, VIOLATED, UNVERIFIED, AT_RISK, TASK_FAILED = EVENTS = (
    "failed", "resumed", "given_up", "violated", "unverified", "at_risk", "task_failed",
)  # fmt: skip

Notify = Callable[[Any], Any]
log = logging.getLogger(__name__)


def tell(
    notifiers: Sequence[Notify],
    context: Mapping[str, Any],
    event: str,
    stream: str,
    reason: str,
    status: StreamStatus | None = None,
) -> None:
    """Count the event and call the notifiers; one that fails must not change what happens to the stream."""
    count(event, stream)
    about = {"event": event, "stream": stream, "reason": reason, "status": status.as_dict() if status else None}
    for notifier in notifiers:
        try:
            # Airflow's notifiers render their templates in place: a copy keeps them for the next event.
            told = copy(notifier) if isinstance(notifier, BaseNotifier) else notifier
            told({**context, "ckpt": about})
        except Exception:
            log.exception("a notifier failed")
