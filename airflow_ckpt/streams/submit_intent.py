"""The intent to submit a driver: which task or user starts it, with which token, and whether it was started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ckpt_stream.protocol.run_files.record_files import INTENTS
from ckpt_stream.protocol.storage import numbered_file

#: How long spark-submit may take in cluster mode: it only uploads files and requests a driver, but a slow upload takes minutes.
SUBMIT_TIMEOUT_SECONDS = 300.0
#: How long a request may need to reach the cluster after spark-submit has ended; a change of the cluster's master takes as long.
LATE_REQUEST_SECONDS = 15.0
#: The time between SIGTERM and SIGKILL to a spark-submit that takes too long, and the time to wait after SIGKILL.
TERM_SECONDS = 5.0
#: The longest time that a submitter may take until it knows its driver, with half a minute for the cluster's last answer: before
#: that, a missing driver does not mean that there is none.
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
    #: The task or user that killed the driver on purpose, and when.
    killed: Mapping[str, str] | None = None
    #: Why the submit ended without a driver.
    failed: Mapping[str, str] | None = None
    #: The number of the intent's entry in the restart history.
    number: int = 0
    #: Fields of a later version, which this version writes back unchanged.
    later: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return numbered_file(INTENTS, self.number)

    @property
    def kill_note(self) -> str:
        """The file that notes a kill; separate, because another process may add the driver's handle to the intent meanwhile."""
        return self.path.replace(".json", ".kill.json")

    @property
    def age_from(self) -> datetime:
        return datetime.fromisoformat(self.time)

    def age(self, at: datetime) -> float:
        return (at - self.age_from).total_seconds()
