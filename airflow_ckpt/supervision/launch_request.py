"""The request for the launch of a driver or of another job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_ckpt.streams.stream import Stream
from ckpt_stream.protocol.data_loss import LostRange


@dataclass(frozen=True)
class LaunchRequest:
    """A request to make the command, the files and the environment of one driver or job."""

    token: str
    #: The lost ranges of the source that a user has accepted: the run skips exactly these.
    accepted_loss: tuple[LostRange, ...] = ()
    #: For a job beside the stream: its document in place of the stream's, and its application if that is not the stream's.
    document: Mapping[str, Any] | None = None
    application: str | None = None

    def document_for(self, stream: Stream, kafka: Mapping[str, Any]) -> Mapping[str, Any]:
        """The configuration for the application, as JSON values without secrets."""
        return self.document or stream.document(kafka, self.token, self.accepted_loss)
