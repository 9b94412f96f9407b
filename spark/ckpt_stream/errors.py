"""All errors of ckpt_stream. A refusal says what was found, what would be lost or doubled, and what helps.

Run records store an error by the name of its class, so the classes must keep their names.
"""

from __future__ import annotations


class StreamError(Exception):
    """Base of every error that this library raises on purpose."""

    #: False when starting the same stream again cannot cure the error.
    restart_may_help = True


class KafkaUnreachable(StreamError):
    """Kafka did not answer a request about topics, offsets or settings, or refused it."""


class ConfigError(StreamError):
    """The stream's configuration cannot be used as it is."""

    restart_may_help = False


# Refusals


class Refused(StreamError):
    """To continue would lose or double records, so nothing was written."""

    restart_may_help = False

    def __init__(self, found: str, risk: str, helps: str) -> None:
        super().__init__(found, risk, helps)
        self.found, self.risk, self.helps = found, risk, helps

    def __str__(self) -> str:
        return f"{self.found} {self.risk} What helps: {self.helps}"


class LedgerAhead(Refused):
    """The ledger holds a later batch than the checkpoint asks for: the checkpoint was rolled back or cloned."""


class OtherInput(Refused):
    """The ledger holds this batch, but with other source offsets."""


class LedgerLost(Refused):
    """The ledger does not hold the batch before this one."""


class ForeignLedger(Refused):
    """The ledger belongs to another query: the checkpoint was deleted, or two streams share one sink id."""


class LanesChanged(Refused):
    """The number of lanes was changed while a part of a batch is in the sink."""


class SinkRecreated(Refused):
    """The sink topic is not the one that the ledger was written for."""


class UnsafeLedger(Refused):
    """The ledger topic may lose batches that the sink keeps: it is not compacted, has a retention, or has fewer replicas."""


class ReplayDiffers(Refused):
    """The replay of a batch that is already in the sink gave other records."""


class BatchInDoubt(Refused):
    """A batch is in doubt, and without a ledger only a user can say whether it is in the sink."""


class NothingToRepair(Refused):
    """A command is to repair a ledger, and checkpoint and ledger show nothing that it could repair."""


class DriverAlive(Refused):
    """Another driver is alive on the same checkpoint."""


class DataLost(Refused):
    """The source no longer holds records that the stream has not read, and no user has accepted their loss."""


class UnsafeSetting(Refused):
    """A setting breaks the exactly-once guarantee."""


# The sink and its ledger


class SinkError(StreamError):
    """Kafka did not accept the batch; the transaction was not committed."""


class SinkRejected(SinkError):
    """Kafka refuses the write for a reason that a restart does not change (size, topic, authorisation)."""

    restart_may_help = False


class CommitUnknown(SinkError):
    """The answer to a commit did not arrive. The next attempt reads the ledger and finds out."""


class Fenced(SinkError):
    """Another producer has fenced this lane's producer."""


class LedgerUndecided(StreamError):
    """The ledger seems to lack a batch, but a transaction that may hold it has not ended yet: try again."""


class LedgerFormatError(StreamError):
    """A record in a ledger topic was written by another program, or by a newer version of airflow-ckpt."""

    restart_may_help = False


# A batch and a run


class InputIncomplete(StreamError):
    """Spark ended a lane's input before all of its rows had arrived; nothing of the lane was committed."""


class EndOfInputUnknown(StreamError):
    """It is unknown whether all rows of a lane have arrived; nothing of the lane was committed."""

    restart_may_help = False


class PlanMissing(StreamError):
    """The checkpoint's offset log lacks an entry that Spark or an earlier run has written."""


class QueryUnknown(StreamError):
    """Neither Spark nor the checkpoint has the id of the query that runs a batch."""

    restart_may_help = False


class BatchNotRun(StreamError):
    """Spark did not run a batch as requested: it ran another batch or other lanes, or ended without a commit."""


class BatchTimeout(StreamError):
    """A batch took longer than the stream allows."""


class StopBeforeBatch(StreamError):
    """A stop was requested: the next run runs the batch that Spark has planned."""


class PoisonRecord(StreamError):
    """A record made the application fail."""


# The checkpoint, and the files beside it


class CheckpointLogError(StreamError):
    """A file of the checkpoint is missing, damaged, or was written by another program."""

    restart_may_help = False

    def __init__(self, kind: str, file: str, found: str, helps: str) -> None:
        super().__init__(kind, file, found, helps)
        #: The problem as a name that stays the same from version to version: `torn`, `missing_commits`, ...
        self.kind = kind
        self.file, self.found, self.helps = file, found, helps

    def __str__(self) -> str:
        return f"{self.found} What helps: {self.helps}."


class RunRecordError(StreamError):
    """A file beside the checkpoint cannot be read."""

    restart_may_help = False

    def __init__(self, *args: object, kind: str = "") -> None:
        super().__init__(*args)
        #: The problem as a name that stays the same from version to version; empty if the class is specific enough.
        self.kind = kind


class Torn(RunRecordError):
    """A file beside the checkpoint is empty or cut off: it may be in the middle of a write."""


class Damaged(RunRecordError):
    """A file beside the checkpoint exists but cannot be parsed."""

    def __init__(self, file: str, problem: str, cost: str) -> None:
        super().__init__(file, problem, cost)
        self.file, self.problem, self.cost = file, problem, cost

    def __str__(self) -> str:
        return (
            f"The checkpoint's {self.file} cannot be read. {self.problem} If no other version of airflow-ckpt wrote it, move it "
            f"away; then {self.cost}."
        )


class Unreadable(RunRecordError):
    """A file beside the checkpoint exists but could not be read for some seconds: the stream's state is unknown."""

    restart_may_help = True

    def __init__(self, file: str, problem: str, seconds: float) -> None:
        super().__init__(file, problem, seconds)
        self.file, self.problem, self.seconds = file, problem, seconds

    def __str__(self) -> str:
        return (
            f"{self.file} could not be read for {self.seconds:g} s, so the state of the stream is unknown. {self.problem} Try "
            "again. If it fails again and no driver of the stream is alive, a driver died while it wrote the file: delete it."
        )


class NotAdded(RunRecordError):
    """The storage refuses a new entry of the restart history as if it existed, but does not list it."""

    restart_may_help = True

    def __init__(self, storage: str, file: str, seconds: float) -> None:
        super().__init__(storage, file, seconds)
        self.storage, self.file, self.seconds = storage, file, seconds

    def __str__(self) -> str:
        return (
            f"{self.storage} refused to create {self.file} for {self.seconds:g} s, as if it existed, but does not list such a "
            "file. The entry may exist, but no driver was started for it. Check whether the storage's listings are up to date "
            "(a cache or a gateway may return old listings) and whether the file can be created there, then try again."
        )


# Verification


class ScanResultFormatError(StreamError):
    """A file is not the result of a scan, or was written by another version."""

    restart_may_help = False


class CannotTell(StreamError):
    """The comparison could not be made; the verdict is unknown."""

    restart_may_help = False

    def __init__(self, kind: str, what: str, helps: str) -> None:
        super().__init__(kind, what, helps)
        self.kind, self.what, self.helps = kind, what, helps

    def __str__(self) -> str:
        return f"{self.what} What helps: {self.helps}."
