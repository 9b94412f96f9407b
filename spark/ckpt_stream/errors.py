"""The errors of ckpt_stream. A refusal says what was found, what would be lost or doubled, and what helps."""

from __future__ import annotations


class StreamError(Exception):
    """Base of every error this library raises on purpose."""

    #: False when starting the same stream again cannot cure the error.
    restart_may_help = True


class ConfigError(StreamError):
    """The stream's configuration cannot be used as it is."""

    restart_may_help = False


class Refused(StreamError):
    """Going on would lose or double records, so nothing was written."""

    restart_may_help = False

    def __init__(self, found: str, risk: str, helps: str) -> None:
        super().__init__(f"{found} {risk} What helps: {helps}")
        self.found, self.risk, self.helps = found, risk, helps

    def __reduce__(self) -> tuple[type[Refused], tuple[str, str, str]]:
        return type(self), (self.found, self.risk, self.helps)


class LedgerAhead(Refused):
    """The ledger holds a later batch than the checkpoint asks for: the checkpoint was rolled back or cloned."""


class OtherInput(Refused):
    """The ledger holds this very batch, made from other source offsets."""


class LedgerLost(Refused):
    """The ledger does not hold the batch before this one."""


class LedgerUndecided(StreamError):
    """The ledger seems to lack a batch, and a transaction in it that may hold it has not ended yet: look again."""


class ForeignLedger(Refused):
    """The ledger belongs to another query: the checkpoint was deleted, or two streams share one sink id."""


class LanesChanged(Refused):
    """The number of lanes was changed while a part of a batch is in the sink."""


class SinkRecreated(Refused):
    """The sink topic is not the one that the ledger speaks of."""


class UnsafeLedger(Refused):
    """The ledger topic may forget what the sink keeps: not compacted, deleted from, or with fewer safe copies."""


class ReplayDiffers(Refused):
    """A batch that is already in the sink came out differently when it was replayed."""


class DriverAlive(Refused):
    """Another driver is alive on the same checkpoint."""


class DataLost(Refused):
    """The source no longer holds records that the stream has not read, and no user has accepted their loss."""


class UnsafeSetting(Refused):
    """A setting breaks the exactly-once guarantee."""


class SinkError(StreamError):
    """Kafka did not take the batch; the transaction was not committed."""


class SinkRejected(SinkError):
    """Kafka will never take this as it is (size, topic, authorisation): a restart changes nothing."""

    restart_may_help = False


class CommitUnknown(SinkError):
    """The answer to a commit did not arrive. The next attempt reads the ledger and finds out."""


class Fenced(SinkError):
    """Another producer took over this lane."""


class InputIncomplete(StreamError):
    """Spark ended a lane's input before all of its rows had come; nothing of the lane was committed."""


class EndOfInputUnknown(StreamError):
    """Nothing tells whether all rows of a lane have come; nothing of the lane was committed."""

    restart_may_help = False


class BatchTimeout(StreamError):
    """A batch took longer than the stream allows."""


class PoisonRecord(StreamError):
    """A record made the application fail."""
