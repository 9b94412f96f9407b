"""All errors of airflow_ckpt. A message says what was found, what would be lost or doubled, and the command that helps.

The errors of the library in Spark are in `ckpt_stream.errors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class RefusalFinding(Protocol):
    """What PreflightRefused uses of a `PreflightFinding`. This module imports nothing, so that each room can import it."""

    @property
    def kind(self) -> str: ...

    @property
    def temporary(self) -> bool: ...


class CkptError(Exception):
    """Base of every error that this package raises on purpose."""

    def __init__(self, *args: object, kind: str = "") -> None:
        super().__init__(*args)
        #: The problem as a name that stays the same from version to version; empty if the class is specific enough.
        self.kind = kind


# What a user declares or calls.


class BadArgument(CkptError, ValueError):
    """An argument of an operator, a sensor, a function or a command cannot be used."""


class BadStream(BadArgument):
    """A stream was declared in a way that cannot work."""


class BadConnection(CkptError):
    """A connection is missing or cannot be used for a stream."""


class UnknownConnection(BadConnection):
    """A connection was not found. In a triggerer this may also mean that Airflow did not answer the request for it."""


class NotInstalled(CkptError):
    """A library or program that the stream needs is not installed where Airflow runs."""


class OtherVersion(CkptError):
    """A stored document was written by another version of airflow-ckpt, which this version cannot read."""


# Starting, resuming and ending a stream.


class PreflightRefused(CkptError):
    """A start or resume was refused, because it would lose or double records or cannot work."""

    def __init__(self, stream: str, findings: Sequence[RefusalFinding]) -> None:
        self.stream, self.findings = stream, tuple(findings)
        lines = "\n".join(f"  {finding}" for finding in findings)
        kinds = ", ".join(f'"{f.kind}"' for f in findings)
        super().__init__(f"{stream} was not started:\n{lines}\nTo start despite this: allow=[{kinds}]")

    @property
    def temporary(self) -> bool:
        """Whether the same start may become safe without a user's action."""
        return all(finding.temporary for finding in self.findings)

    def __reduce__(self) -> tuple[type[PreflightRefused], tuple[str, tuple[RefusalFinding, ...]]]:
        return type(self), (self.stream, self.findings)


#: Why a stream is given up: its restart strategy allows no more restarts, or no restart can cure its failure.
NO_MORE_RESTARTS, NO_CURE = "no_more_restarts", "no_cure"


class GivenUp(CkptError):
    """The stream has failed for good: the restart strategy allows no more restarts, or no restart can help."""

    def __init__(self, message: str, kind: str = NO_MORE_RESTARTS) -> None:
        super().__init__(message, kind=kind)


class TryAgain(CkptError):
    """A start was prevented for a reason that may disappear, so a retry of the task may succeed."""


class StatusUnknown(CkptError):
    """The stream could not be observed while its task was deferred, so its state is unknown."""


class StorageError(CkptError):
    """The storage of a checkpoint does not answer, or refused a request."""


class NeverRan(CkptError):
    """There is no record of a stream beside the checkpoint."""


class NotStartable(CkptError):
    """The stream cannot be started from here: its last launch, its runner or its credentials are missing."""


class NotSubmitted(CkptError):
    """The driver was not submitted by Airflow, so it cannot be ended from here."""


class ResumeFailed(CkptError):
    """The stream was resumed by a command, and broke again before the driver was RUNNING."""


class NotConfirmed(CkptError):
    """A command that may lose or double records was not confirmed."""


class NotDelivered(CkptError):
    """Kafka or a web hook did not accept what was sent to it."""


class RunnerError(CkptError):
    """The driver could not be started, asked or ended."""


class SubmitFailed(RunnerError):
    """spark-submit ended without a driver."""


class StillAlive(RunnerError):
    """A driver was killed but may still be running, so no other driver is started."""


class KubernetesApiError(RunnerError):
    """The Kubernetes API server answered with an error, or did not answer (status 0)."""

    def __init__(self, message: str, status: int = 0, is_not_found: bool = False) -> None:
        super().__init__(message)
        self.status, self.is_not_found = status, is_not_found


class NotPrivate(RunnerError):
    """A file or folder of a driver can be read or written by other users."""


# Verifying a sink.


class ScanStuck(CkptError):
    """The sink could not be read to the end."""


class NoResult(CkptError):
    """The Spark job of a verification wrote no result, or a result that cannot be read."""


class TooManyIds(CkptError):
    """There are more record ids than the scan may keep in memory."""


# The stack on one machine.


class StackError(CkptError):
    """A part of the embedded stack (jars, Kafka, Airflow) could not be started, stopped or set up."""


class IvyFailed(StackError):
    """Ivy could not deliver all jars. The message says why, and what to do."""
