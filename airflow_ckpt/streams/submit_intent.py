"""The intent to submit a driver: which task or user starts it, with which token, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ckpt_stream.protocol.run_files.record_files import INTENTS
from ckpt_stream.protocol.storage import numbered_file

#: In cluster mode spark-submit only uploads files and asks for a driver; a slow upload is what takes minutes.
SUBMIT_TIMEOUT_SECONDS = 300.0
#: A request that was under way when spark-submit ended reaches the cluster within seconds; so does a change of its master.
LATE_REQUEST_SECONDS = 15.0
#: Between SIGTERM and SIGKILL to a spark-submit that took too long, and as long after that.
TERM_SECONDS = 5.0
#: The longest that a submitter may take until it knows its driver, with half a minute for the cluster's last answer: a look
#: at the stream before that must not conclude that there is no driver.
LONGEST_SUBMIT_SECONDS = SUBMIT_TIMEOUT_SECONDS + 2 * TERM_SECONDS + LATE_REQUEST_SECONDS + 30.0


@dataclass(frozen=True)
class SubmitIntent:
    """A task or a user is about to start, or has started, a driver with this token."""

    token: str
    time: str
    #: An Airflow task instance, or user@host.
    by: str
    runner: str
    stream: Mapping[str, Any] = field(default_factory=dict)
    #: The handle of the driver, once there is one.
    handle: Mapping[str, Any] | None = None
    #: Which task or user had the driver killed on purpose, and when.
    killed: Mapping[str, str] | None = None
    #: Why there is no driver although the submit is over.
    failed: Mapping[str, str] | None = None
    #: The number of its entry in the restart history.
    number: int = 0
    #: Fields of a later version, which this one writes back.
    later: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return numbered_file(INTENTS, self.number)

    @property
    def kill_note(self) -> str:
        """A separate file: a user may ask for the kill while another process adds the driver's handle to the intent."""
        return self.path.replace(".json", ".kill.json")

    @property
    def age_from(self) -> datetime:
        return datetime.fromisoformat(self.time)

    def age(self, at: datetime) -> float:
        return (at - self.age_from).total_seconds()
