"""What a launch of a driver or of another job is made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_ckpt.streams.stream import Stream
from ckpt_stream.protocol.data_loss import LostRange


@dataclass(frozen=True)
class LaunchRequest:
    """A request to make the command, files and environment of one driver or job."""

    token: str
    #: What the source has lost and a user has accepted: the run passes over exactly this.
    accepted_loss: tuple[LostRange, ...] = ()
    #: For a job beside the stream: its document instead of the stream's, and its application if it is another one.
    document: Mapping[str, Any] | None = None
    application: str | None = None

    def document_for(self, stream: Stream, kafka: Mapping[str, Any]) -> Mapping[str, Any]:
        """The configuration that the application is given, as JSON values without secrets."""
        return self.document or stream.document(kafka, self.token, self.accepted_loss)
