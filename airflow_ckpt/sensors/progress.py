"""Waits until a stream has made progress, and fails at once if the stream is broken or has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_ckpt.exceptions import BadArgument
from airflow_ckpt.operators.base import StreamOperator
from airflow_ckpt.operators.steps import Done, Event, Step, Wait
from airflow_ckpt.streams.goal import REACHED
from airflow_ckpt.streams.templates import is_template
from airflow_ckpt.supervision.control import StreamControl


class CheckpointProgressSensor(StreamOperator):
    """Wait for progress of a stream's checkpoint. Several conditions must hold at the same time.

    The sensor fails at once if the stream is FAILED, LOST or STALLED, or ends before the conditions hold.

    :param batches: the current run has committed so many batches
    :param batch: the batch with this number is committed
    :param offsets: these offsets are committed: `{topic: {partition: offset}}`
    :param max_lag: at most so many records of the source are unread
    :param drained: all input that existed when the task began is committed
    """

    ui_color = "#e6f1f2"

    def __init__(
        self,
        *,
        batches: int | str | None = None,
        batch: int | None = None,
        offsets: Mapping[str, Mapping[str, int]] | None = None,
        max_lag: int | None = None,
        drained: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if batches is batch is max_lag is None and not offsets and not drained:
            raise BadArgument("CheckpointProgressSensor needs one of batches, batch, offsets, max_lag, drained.")
        self.batches, self.batch, self.offsets = batches, batch, offsets
        self.max_lag, self.drained = max_lag, drained

    template_fields = ("stream", "timeout", "batches")

    def begin(self, context: Any, control: StreamControl) -> Step:
        if is_template(self.batches):
            raise BadArgument(f"batches={self.batches!r} was not rendered.")
        goal = self.goal(
            batches=None if self.batches is None else int(self.batches),
            batch=self.batch,
            offsets={t: {str(p): o for p, o in ps.items()} for t, ps in (self.offsets or {}).items()},
            max_lag=self.max_lag,
            drained=self.drained,
            ends=control.source_ends() if self.drained else {},
        )
        return Wait(goal, "has_moved")

    def has_moved(self, context: Any, control: StreamControl, event: Event) -> Step:
        if event["outcome"] != REACHED:
            self.send_event(context, "failed", str(event["reason"]))
            raise self.failure(control, event)
        return Done(event["status"])
