"""The verdict of a verification: clean, violated or unknown, with its findings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

CLEAN, VIOLATED, UNKNOWN = "clean", "violated", "unknown"
EXIT_CODES = {CLEAN: 0, VIOLATED: 1, UNKNOWN: 2}

LEDGER, SINK, RECOMPUTE = "ledger", "sink", "recompute"
#: Findings that every later verification of the range would have too: its start is no longer in the ledger, or retention has
#: deleted records of it from the sink.
HISTORY, TRUNCATED = "ledger_history", "sink_truncated"
#: A user let the stream continue although a batch replayed differently: its records can never be verified.
REPLAY_ACCEPTED = "replay_accepted"
#: The depth for a sink of another program: its records are compared by an id in each record.
FOREIGN_SINK = "foreign"
DEPTHS = (LEDGER, SINK, RECOMPUTE)


@dataclass(frozen=True)
class Finding:
    """One fault, or one check that could not be made."""

    #: A short name that stays the same from version to version: `lost`, `ledger_gap`, `open_transaction`, ...
    kind: str
    #: A description of what was found.
    what: str
    #: What to do about it.
    helps: str = ""
    batch: int | None = None
    lane: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    #: The number of records concerned, if it is known.
    records: int | None = None
    #: False: the finding makes the verdict unknown, but is no violation.
    violation: bool = True
    #: The query of the batch.
    query: str | None = None


@dataclass(frozen=True)
class BatchSums:
    """One batch, with its sums in the ledger and in the sink."""

    batch: int
    time: str
    expected: int
    found: int | None = None
    #: The number of source offsets in the batch.
    source: int | None = None
    query: str | None = None


@dataclass
class Verdict:
    """The result of one verification. Numbers that are unknown are None, never 0."""

    stream: str
    depth: str
    #: The batch at which the requested range begins; it need not exist.
    since: int = 0
    first_batch: int | None = None
    last_batch: int | None = None
    source_records: int | None = None
    ledger_records: int = 0
    #: The number of records from the second run of the transform (depth `recompute`).
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
    #: Information for the user that does not change the verdict.
    notes: list[Finding] = field(default_factory=list)
    batches: list[BatchSums] = field(default_factory=list)
    seconds: float = 0.0
    records_per_second: float | None = None
    audited: bool = False
    time: str = ""
    #: The query to which the number `since` belongs; None: the range was to begin at the start of the stream.
    since_query: str | None = None
    #: The queries whose batches are in the ledger, in the order in which they wrote: `query_id`, `first` and `last` batch.
    queries: list[dict[str, Any]] = field(default_factory=list)
    #: The last batch that was verified, whatever the result.
    reached: dict[str, Any] | None = None
    #: Where the next incremental verification begins.
    verified_until: dict[str, Any] | None = None

    @property
    def verdict(self) -> str:
        """`violated` if there is a violation; otherwise `unknown` if a check could not be made; otherwise `clean`."""
        if any(f.violation for f in self.findings):
            return VIOLATED
        return UNKNOWN if self.findings else CLEAN

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    def as_dict(self) -> dict[str, Any]:
        return {"verdict": self.verdict, **asdict(self)}
