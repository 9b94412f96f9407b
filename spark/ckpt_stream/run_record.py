"""The run record: what each life of a stream's driver says about itself, in small JSON files beside the checkpoint.

``<checkpoint>/_ckpt/runs/<run>.json`` one file per run; ``stop.json`` a request to stop; ``restarts/`` the restart history
(see `restart_history`); ``poison.json`` records that made the application fail and count as consumed; ``adoption.json``
the ledger that a new checkpoint took over; ``replays.json`` batches whose replay differed from what is in the sink;
``accepted.json`` the one such batch that a user lets the stream finish all the same; ``replaced/`` the former plans of
batches that were planned anew over an accepted loss.

This module is the format's one definition and imports neither Spark nor Kafka.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from ckpt_stream.errors import StreamError

FORMAT = 1
FOLDER = "_ckpt"
RUNS = f"{FOLDER}/runs"
STOP = f"{FOLDER}/stop.json"
RESTARTS = f"{FOLDER}/restarts"
#: Of the drivers that Airflow or a user has submitted, each by the number of its entry in the restart history.
INTENTS = f"{FOLDER}/intents"
POISON = f"{FOLDER}/poison.json"
ADOPTION = f"{FOLDER}/adoption.json"
REPLAYS = f"{FOLDER}/replays.json"
ACCEPTED = f"{FOLDER}/accepted.json"
REPLACED = f"{FOLDER}/replaced"

STARTING, RUNNING, STOPPED, FINISHED, FAILED = "STARTING", "RUNNING", "STOPPED", "FINISHED", "FAILED"
LIVE = (STARTING, RUNNING)

#: Kinds of entries in the restart history: a restart uses up a strategy's budget, a submit begins a new one.
SUBMIT, RESTART = "submit", "restart"

_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")

#: A status looks at the last five; people, and the curves of a verification's report, at the last minutes.
KEEP_BATCHES = 100
#: The record is written with every heartbeat and read with every look at the stream: as much as takes a few milliseconds.
KEEP_BATCH_BYTES = 256 * 1024
#: What of a batch grows with the number of partitions or lanes, the least important first.
_LARGE_PARTS = (("start", "end"), ("lanes",))
#: More runs than a person goes through, and few enough for a driver to read each of them when it starts.
KEEP_RUNS = 100
#: More restarts than a strategy with a limit allows: a budget is counted from them.
KEEP_RESTARTS = 1000
KEEP_REPLAYS = 1000
#: Besides those that the stream may still meet. A recomputation of old batches leaves the same records out; each of them has
#: cost a run, so these are enough for a long time.
KEEP_POISON = 1000

T = TypeVar("T")


class RunRecordError(StreamError):
    """A file of the run record cannot be read."""

    restart_may_help = False


class Torn(RunRecordError):
    """A file of the run record is empty or cut off: it may be the middle of a write."""


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def run_name(started: datetime, token: str) -> str:
    """A run's id: sorted by name is sorted by start."""
    return f"{started.astimezone(UTC):%Y%m%dT%H%M%S.%f}-{token}"


def token_of(run: str) -> str:
    """The token in a run's name."""
    return run.partition("-")[2]


def replaced(batch: int, digest: str) -> str:
    """Where an entry of the offset log is kept when the batch was planned anew."""
    return f"{REPLACED}/offsets-{batch}-{digest}"


def path_of(run: str) -> str:
    """The file of the run with this name."""
    return f"{RUNS}/{run}.json"


def run_names(listing: Iterable[str]) -> list[str]:
    """The runs in a listing of their folder. Files that Hadoop or a writer leaves beside them begin with a dot."""
    return [name.removesuffix(".json") for name in listing if name.endswith(".json") and not name.startswith(".")]


@dataclass
class Failure:
    """Why a run ended."""

    error: str
    message: str
    batch: int | None = None
    #: The record that the application could not take: topic, partition, offset.
    poison: dict[str, Any] | None = None
    #: False when starting again cannot help.
    restart_may_help: bool = True


@dataclass
class RunRecord:
    """One life of a stream's driver."""

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
    #: When the driver's watch over its query last went round; of a hung one this stops, and the heartbeat does not.
    watched: str = ""
    #: When Spark last said that no input waited; while some waits, or a batch runs, this stops.
    idle: str = ""
    reconciliation: str = ""
    #: It has taken up a stop request and ends after its batch; see `stop_request`.
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
        """Add the newest batch. Only the newest one keeps its offsets: the ledger has them all."""
        before = [*self.batches[:-1], *(_without(former, ("start", "end")) for former in self.batches[-1:])]
        self.batches = _newest([*before[-(KEEP_BATCHES - 1) :], _small(batch)])
        for name in ("input_rows", "records", "skipped", "malformed", "dead_letters"):
            self.totals[name] = self.totals.get(name, 0) + int(batch.get(name) or 0)
        self.totals["batches"] = self.totals.get("batches", 0) + 1

    def to_json(self) -> str:
        document = {f.name: getattr(self, f.name) for f in fields(self)}
        return _compact({**document, "failure": asdict(self.failure) if self.failure else None})

    @classmethod
    def from_json(cls, text: str) -> RunRecord:
        document = parse(text, "run record")
        failure = document.pop("failure", None)
        known = build(Failure, failure, "failure in the run record") if failure else None
        found = build(cls, {**document, "failure": known}, "run record")
        # Files are read and deleted by this name: a program that can write the record must not choose which.
        if not isinstance(found.run, str) or not _PLAIN_NAME.fullmatch(found.run):
            raise RunRecordError(f"The run record names its run {found.run!r}, which is not a run's name.")
        return found


def _compact(document: Any) -> str:
    """With an indent, Python would write it many times more slowly."""
    return json.dumps(document, separators=(",", ":"))


def _without(batch: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in batch.items() if name not in names}


def _small(batch: dict[str, Any]) -> dict[str, Any]:
    """The batch without what makes it larger than all batches together may be."""
    for names in _LARGE_PARTS:
        if len(_compact(batch)) <= KEEP_BATCH_BYTES:
            break
        batch = _without(batch, names)
    return batch


def _newest(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many of the newest batches as may be kept, in order; the last one always."""
    left = KEEP_BATCH_BYTES
    for number, batch in enumerate(reversed(batches)):
        left -= len(_compact(batch))
        if left < 0 and number > 0:
            return batches[-number:]
    return batches


def build(kind: type[T], document: Any, what: str) -> T:
    """A dataclass out of a file's fields. Those of a later version are passed over, so that one can go back to this one."""
    if not isinstance(document, Mapping):
        raise RunRecordError(f"The {what} is not a JSON object.")
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    try:
        return kind(**{name: value for name, value in document.items() if name in known})
    except TypeError as e:
        raise RunRecordError(f"The {what} lacks a field: {e}") from e


def parse(text: str, what: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as e:
        raise Torn(f"The {what} is not JSON: {text[:80]!r}") from e
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise RunRecordError(
            f"The {what} is not of format {FORMAT}; install the version of airflow-ckpt that wrote it."
        )
    return document


def listing(entries: list[dict[str, Any]]) -> str:
    """A file that holds a list (restarts, poison records)."""
    return _compact({"format": FORMAT, "entries": entries})


def entries(text: str | None, what: str) -> list[dict[str, Any]]:
    if text is None:
        return []
    found = parse(text, what).get("entries")
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise RunRecordError(f"The {what} holds no list of entries; install the version of airflow-ckpt that wrote it.")
    return found


def read_stop(text: str | None) -> dict[str, Any] | None:
    """A stop request. One that cannot be read is none: it must not end a healthy stream."""
    try:
        return parse(text, "stop request") if text else None
    except RunRecordError:
        return None


def is_stop_for(text: str, record: RunRecord) -> bool:
    request = read_stop(text)
    return request is not None and is_meant_for(request, record)


def is_meant_for(request: Mapping[str, Any], record: RunRecord) -> bool:
    """Whether a stop request means this run: it names the run or its token, or is younger than the run.

    A younger one may name the run before: it crossed the restart.
    """
    if request.get("run") == record.run or (request.get("run") is None and request.get("token") == record.token != ""):
        return True
    begun, asked = record.history[0]["time"] if record.history else "", str(request.get("time", ""))
    named = request.get("run") is not None or request.get("token")
    return asked > begun if named else asked >= begun


def is_obeyed(request: Mapping[str, Any], runs: Iterable[RunRecord]) -> bool:
    """Whether one of these runs has ended well because of a stop request, or after it."""
    ended = [run for run in runs if run.state in (STOPPED, FINISHED) and run.history]
    asked = str(request.get("time", ""))
    return any(run.run == request.get("run") or run.history[-1]["time"] >= asked for run in ended)


def stop_request(by: str, reason: str = "", run: str | None = None, token: str | None = None) -> str:
    """Ask a run to end after the batch it is working on: by its name, by the token of one that has written no record yet, or
    whichever run is there."""
    return json.dumps({"format": FORMAT, "by": by, "reason": reason, "run": run, "token": token, "time": now()})


def accepted_batch(text: str | None) -> tuple[str, int] | None:
    """Query and batch that a user lets the stream finish although it does not replay identically."""
    if not text:
        return None
    document = parse(text, "accepted replay")
    return str(document["query_id"]), int(document["batch"])
