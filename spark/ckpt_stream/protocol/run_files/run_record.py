"""The run record: a small JSON file beside the checkpoint, in which each run of a stream's driver writes its state.

The files below ``<checkpoint>/_ckpt``: ``runs/<run>.json`` the run record of each run; ``stop.json`` a request to stop;
``restarts/`` the restart history (see `restart_history`); ``poison.json`` records that made the application fail and count as
consumed; ``adoption.json`` the ledger that a new checkpoint has adopted; ``replays.json`` batches whose replay differed from
the sink; ``accepted.json`` the batch whose different replay a user has accepted; ``replaced/`` the former plans of batches that
were planned again because of an accepted loss.

The format of the run record is defined in this module only, which imports neither Spark nor Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from ckpt_stream.errors import RunRecordError
from ckpt_stream.protocol.run_files.record_files import FORMAT, RUNS, build_dataclass, now, parse_document, to_json

STARTING, RUNNING, STOPPED, FINISHED, FAILED = "STARTING", "RUNNING", "STOPPED", "FINISHED", "FAILED"
NOT_ENDED = (STARTING, RUNNING)

#: A driver counts as dead after so many intervals without a heartbeat: a heartbeat is late when the driver's machine pauses.
MISSED_HEARTBEATS = 6

_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")

#: How many batches a record keeps: a status uses the last five; users and the curves of a report use those of the last minutes.
KEEP_BATCHES = 100
#: How large the batches of a record may be: it is written with every heartbeat and read with every status of the stream, which
#: should take a few milliseconds.
KEEP_BATCH_BYTES = 256 * 1024
#: The fields of a batch that grow with the number of partitions or lanes, the least important first.
_LARGE_PARTS = (("start", "end"), ("lanes",))
#: How many run records are kept: few enough for a driver to read each of them when it starts.
KEEP_RUNS = 100


def run_name(started: datetime, token: str) -> str:
    """A run's id; the order of the ids is the order of the starts."""
    return f"{started.astimezone(UTC):%Y%m%dT%H%M%S.%f}-{token}"


def token_of(run: str) -> str:
    """The token in a run's name."""
    return run.partition("-")[2]


def path_of(run: str) -> str:
    """The file of the run with this name."""
    return f"{RUNS}/{run}.json"


def runs_in(listing: Iterable[str]) -> list[str]:
    """The names of the runs in their folder. Temporary files and Hadoop's checksums, which begin with a dot, are left out."""
    return [name.removesuffix(".json") for name in listing if name.endswith(".json") and not name.startswith(".")]


@dataclass
class Failure:
    """Why a run ended."""

    error: str
    message: str
    batch: int | None = None
    #: The record on which the application failed: topic, partition, offset.
    poison: dict[str, Any] | None = None
    #: False when starting again cannot help.
    restart_may_help: bool = True


@dataclass
class RunRecord:
    """One run of a stream's driver, from its start to its end."""

    run: str
    stream: str
    token: str = ""
    state: str = STARTING
    history: list[dict[str, str]] = field(default_factory=list)
    driver: dict[str, Any] = field(default_factory=dict)
    spark: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    query_id: str | None = None
    heartbeat: str = ""
    heartbeat_seconds: float = 5.0
    #: When the driver last looked at its query. In a driver that hangs, this time does not change, but the heartbeat does.
    watched: str = ""
    #: When Spark last reported that no input is waiting. It does not change while input is waiting or a batch runs.
    idle: str = ""
    reconciliation: str = ""
    #: The run obeys a stop request and ends after its current batch; see `stop_request`.
    stopping: bool = False
    batches: list[dict[str, Any]] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    failure: Failure | None = None
    format: int = FORMAT

    @property
    def path(self) -> str:
        return path_of(self.run)

    def enter(self, state: str) -> None:
        self.state = state
        self.history.append({"state": state, "time": now()})

    def add_batch(self, batch: dict[str, Any]) -> None:
        """Add the newest batch. Only the newest batch keeps its offsets: the ledger has those of all batches."""
        before = [*self.batches[:-1], *(_without(former, ("start", "end")) for former in self.batches[-1:])]
        self.batches = _newest([*before[-(KEEP_BATCHES - 1) :], _small(batch)])
        for name in ("input_rows", "records", "skipped", "malformed", "dead_letters"):
            self.totals[name] = self.totals.get(name, 0) + int(batch.get(name) or 0)
        self.totals["batches"] = self.totals.get("batches", 0) + 1

    def to_json(self) -> str:
        document = {f.name: getattr(self, f.name) for f in fields(self)}
        return to_json({**document, "failure": asdict(self.failure) if self.failure else None})

    @classmethod
    def from_json(cls, text: str) -> RunRecord:
        document = parse_document(text, "run record")
        failure = document.pop("failure", None)
        known = build_dataclass(Failure, failure, "failure in the run record") if failure else None
        found = build_dataclass(cls, {**document, "failure": known}, "run record")
        # Files are read and deleted by this name: a program that can write the record must not be able to choose other files.
        if not isinstance(found.run, str) or not _PLAIN_NAME.fullmatch(found.run):
            raise RunRecordError(
                f"The run record names its run {found.run!r}, which is not a run's name.", kind="bad_name"
            )
        return found


def _without(batch: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in batch.items() if name not in names}


def _small(batch: dict[str, Any]) -> dict[str, Any]:
    """The batch without the fields that make it larger than all batches together may be."""
    for names in _LARGE_PARTS:
        if len(to_json(batch)) <= KEEP_BATCH_BYTES:
            break
        batch = _without(batch, names)
    return batch


def _newest(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many of the newest batches as may be kept, in order; always at least the last batch."""
    left = KEEP_BATCH_BYTES
    for number, batch in enumerate(reversed(batches)):
        left -= len(to_json(batch))
        if left < 0 and number > 0:
            return batches[-number:]
    return batches
