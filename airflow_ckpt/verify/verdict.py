"""The verdict of a verification: clean, violated, or unknown; and what was found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

CLEAN, VIOLATED, UNKNOWN = "clean", "violated", "unknown"
EXIT_CODES = {CLEAN: 0, VIOLATED: 1, UNKNOWN: 2}

LEDGER, SINK, RECOMPUTE = "ledger", "sink", "recompute"
#: Findings that every later verification of the range would have too: the ledger has forgotten its start, or retention has
#: deleted records of it from the sink.
HISTORY, TRUNCATED = "ledger_history", "sink_truncated"
#: A user let the stream go on although a batch replayed differently: its records can never be verified.
REPLAY_ACCEPTED = "replay_accepted"
#: A sink that another program writes: its records are told apart by an id that they carry.
FOREIGN_SINK = "foreign"
DEPTHS = (LEDGER, SINK, RECOMPUTE)


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be, or that could not be looked at."""

    #: A short name that stays the same from version to version: `lost`, `ledger_gap`, `open_transaction`, ...
    kind: str
    #: What was found, in words.
    what: str
    #: What to do about it.
    helps: str = ""
    batch: int | None = None
    lane: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    #: How many records it concerns, where that is known.
    records: int | None = None
    #: False: it keeps the verdict from being clean, but is no violation.
    violation: bool = True
    #: The query whose batch it is.
    query: str | None = None


@dataclass(frozen=True)
class BatchSums:
    """One batch, as the ledger has it and as it was found in the sink."""

    batch: int
    time: str
    expected: int
    found: int | None = None
    #: Source offsets that it covers.
    source: int | None = None
    query: str | None = None


@dataclass
class Verdict:
    """The result of one verification. Numbers that are unknown are None, never 0."""

    stream: str
    depth: str
    #: The batch at which the range begins that was asked for; it need not exist.
    since: int = 0
    first_batch: int | None = None
    last_batch: int | None = None
    source_records: int | None = None
    ledger_records: int = 0
    #: Records that the transform gives when it is run once more (depth `recompute`).
    recomputed: int | None = None
    sink_committed: int | None = None
    aborted_hidden: int | None = None
    lost: int | None = None
    duplicated: int | None = None
    torn: int | None = None
    alien: int | None = None
    out_of_order: int | None = None
    altered: int | None = None
    #: Records found in dead-letter topics.
    dead_letters: int | None = None
    open_transactions: int = 0
    findings: list[Finding] = field(default_factory=list)
    #: What a user should know although it does not change the verdict.
    notes: list[Finding] = field(default_factory=list)
    batches: list[BatchSums] = field(default_factory=list)
    seconds: float = 0.0
    records_per_second: float | None = None
    audited: bool = False
    time: str = ""
    #: The query that `since` counts in; None: the range was to begin where the stream did.
    since_query: str | None = None
    #: The queries whose batches are in the ledger, in the order in which they wrote: `query_id`, `first` and `last` batch.
    queries: list[dict[str, Any]] = field(default_factory=list)
    #: The last batch that was looked at, whatever was found.
    reached: dict[str, Any] | None = None
    #: Where the next incremental verification begins.
    verified_until: dict[str, Any] | None = None

    @property
    def verdict(self) -> str:
        """A violation outweighs what is unknown; what is unknown is never clean."""
        if any(f.violation for f in self.findings):
            return VIOLATED
        return UNKNOWN if self.findings else CLEAN

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    def as_dict(self) -> dict[str, Any]:
        return {"verdict": self.verdict, **asdict(self)}
