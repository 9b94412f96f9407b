"""The status of a stream: one of eight states, derived from run record, checkpoint, driver and Kafka. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from airflow_ckpt.checkpoint.reader import Checkpoint
from airflow_ckpt.runners import base as driver_states
from airflow_ckpt.runners.base import DriverState
from airflow_ckpt.runners.submit import LONGEST_SUBMIT_S
from airflow_ckpt.streams.duration import in_words
from airflow_ckpt.streams.intent import SubmitIntent
from airflow_ckpt.streams.stream import Stream
from ckpt_stream import run_record as records
from ckpt_stream.lease import MISSED_HEARTBEATS, is_alive_here
from ckpt_stream.run_record import RunRecord

STARTING, RUNNING, IDLE, STALLED = "STARTING", "RUNNING", "IDLE", "STALLED"
FAILED, LOST, STOPPED, FINISHED = "FAILED", "LOST", "STOPPED", "FINISHED"
#: Not one of the eight: nobody ever started this stream.
NEW = "NEW"

HEALTHY = (STARTING, RUNNING, IDLE)
#: What a resume is for.
BROKEN = (FAILED, LOST, STALLED)
ENDED_WELL = (STOPPED, FINISHED)


@dataclass(frozen=True)
class PartitionLag:
    """What waits in one source partition."""

    topic: str
    partition: int
    committed: int | None
    end: int
    records: int | None
    #: Age of the oldest record that waits; 0 when none does, None when it was not asked for or cannot be told.
    seconds: float | None = None


@dataclass(frozen=True)
class Observation:
    """Everything that was seen of a stream in one look; run, intent and driver are those of `current`."""

    now: datetime
    intent: SubmitIntent | None = None
    run: RunRecord | None = None
    checkpoint: Checkpoint | None = None
    #: None: no runner knows a driver (it was started by hand, or never).
    driver: DriverState | None = None
    #: None: Kafka was not asked, or did not answer (see kafka_error).
    lag: tuple[PartitionLag, ...] | None = None
    kafka_error: str = ""
    #: The newest stop request beside the checkpoint, whichever run it was meant for.
    stop: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class StreamStatus:
    """What a person wants to know about a stream; JSON through `as_dict`."""

    stream: str
    state: str
    reason: str
    time: str
    run: str | None = None
    token: str | None = None
    started: str | None = None
    batch: int | None = None
    in_doubt: int | None = None
    batches_in_run: int = 0
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    last_commit: str | None = None
    age_seconds: float | None = None
    rows_per_second: float | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    partitions: tuple[PartitionLag, ...] = ()
    ui: str | None = None
    log: str | None = None
    driver: Mapping[str, Any] | None = None
    failure: Mapping[str, Any] | None = None
    #: When the stream broke; None while it is well.
    broken_since: str | None = None
    restart_may_help: bool = True
    #: A stop that was requested and that no driver has obeyed yet: the stream is not restarted.
    stop: Mapping[str, Any] | None = None
    #: The driver has taken up a request to stop, and ends after its batch.
    stopping: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def drained(self) -> bool:
        """All input that is there has been committed."""
        return self.lag_records == 0 and self.in_doubt is None

    def line(self) -> str:
        """One line for a log."""
        parts = [f"{self.stream} is {self.state}"]
        if self.batch is not None:
            parts.append(f"batch {self.batch} committed")
        if self.age_seconds is not None:
            parts.append(f"{in_words(self.age_seconds)} ago")
        if self.rows_per_second is not None:
            parts.append(f"{self.rows_per_second:,.0f} rows/s")
        if self.lag_records is not None:
            parts.append(f"lag {self.lag_records:,}" + (f" ({in_words(self.lag_seconds)})" if self.lag_seconds else ""))
        if self.reason:
            parts.append(self.reason)
        return ", ".join(parts)


@dataclass(frozen=True)
class _Judgement:
    state: str
    reason: str = ""
    since: datetime | None = None
    restart_may_help: bool = True


def derive(stream: Stream, seen: Observation) -> StreamStatus:
    """The one status that fits what was seen. Only a positive sign ends well: not found is never success."""
    run, intent = seen.run, seen.intent
    stop = pending_stop(seen.stop, run, intent)
    judged = _stopped(_judge(stream, seen, run, intent), seen.stop, stop, run)
    checkpoint = seen.checkpoint
    commit = _last_commit(run, checkpoint)
    failure = asdict(run.failure) if run and run.failure else None
    lag = _total(seen.lag)
    seconds = [p.seconds for p in seen.lag or () if p.seconds is not None]
    driver = seen.driver
    return StreamStatus(
        stream=stream.name,
        state=judged.state,
        reason=judged.reason,
        time=seen.now.isoformat(timespec="milliseconds"),
        run=run.run if run else None,
        token=run.token if run else intent.token if intent else None,
        started=run.history[0]["time"] if run and run.history else None,
        batch=checkpoint.committed if checkpoint else None,
        in_doubt=checkpoint.in_doubt if checkpoint else None,
        batches_in_run=int(run.totals.get("batches", 0)) if run else 0,
        offsets=checkpoint.committed_offsets if checkpoint else {},
        last_commit=commit.isoformat(timespec="milliseconds") if commit else None,
        age_seconds=round((seen.now - commit).total_seconds(), 1) if commit else None,
        rows_per_second=_rate(run),
        lag_records=lag,
        lag_seconds=max(seconds, default=None),
        partitions=seen.lag or (),
        ui=(str(run.spark.get("ui") or "") or None) if run else None,
        log=(driver.url or None) if driver else None,
        driver=dict(intent.handle) if intent and intent.handle else None,
        failure=failure,
        broken_since=judged.since.isoformat(timespec="milliseconds") if judged.since else None,
        restart_may_help=judged.restart_may_help,
        stop=stop,
        stopping=run is not None and run.stopping and judged.state in (*HEALTHY, STALLED),
    )


def pending_stop(
    request: Mapping[str, Any] | None, run: RunRecord | None, intent: SubmitIntent | None
) -> Mapping[str, Any] | None:
    """The request if it still is to be obeyed. A submit deletes it, a restart does not; a driver that was started by hand
    knows none from before its start."""
    if request is None or (run is None and intent is None):
        return None
    if run is None:
        return request
    if run.state in ENDED_WELL:
        return None
    return request if intent is not None or records.is_meant_for(request, run) else None


def _stopped(
    judged: _Judgement, request: Mapping[str, Any] | None, pending: Mapping[str, Any] | None, run: RunRecord | None
) -> _Judgement:
    """A stream that is broken and was asked to stop is not to be restarted; of one that obeyed, the reason names who asked."""
    if pending is not None and judged.state in (FAILED, LOST):
        return _Judgement(STOPPED, f"stopped {_on_request(pending)}; it was {judged.state}: {judged.reason}")
    if judged.state == STOPPED and run is not None and request is not None and records.is_meant_for(request, run):
        return _Judgement(STOPPED, judged.reason or f"stopped {_on_request(request)}")
    return judged


def _on_request(request: Mapping[str, Any]) -> str:
    why = f" ({request['reason']})" if request.get("reason") else ""
    return f"on request of {request.get('by')} at {request.get('time')}{why}"


def _judge(stream: Stream, seen: Observation, run: RunRecord | None, intent: SubmitIntent | None) -> _Judgement:
    if run is not None:
        if run.state in records.LIVE:
            return _living(stream, seen, run, intent)
        ended = datetime.fromisoformat(run.history[-1]["time"])
        if run.failure is not None and run.state == records.FAILED:
            words = f"{run.failure.error}: {run.failure.message}"
            return _Judgement(FAILED, words, ended, run.failure.restart_may_help)
        return _Judgement(run.state, "", ended if run.state == records.FAILED else None)
    if intent is not None:
        return _submitted(stream, seen, intent)
    return _Judgement(NEW, "it was never started")


def _submitted(stream: Stream, seen: Observation, intent: SubmitIntent) -> _Judgement:
    """A driver was submitted that has not written a run record yet."""
    age, driver = intent.age(seen.now), seen.driver
    limit = _seconds(stream, "start_timeout")
    if intent.killed and not (driver and driver.live):
        return _Judgement(STOPPED, f"killed on request of {intent.killed.get('by')} before it wrote a run record")
    if intent.failed and not (driver and driver.live):
        return _Judgement(FAILED, intent.failed["message"], datetime.fromisoformat(intent.failed["time"]))
    if driver is None:
        if age < LONGEST_SUBMIT_S:
            return _Judgement(STARTING, f"submitted by {intent.by} {in_words(age)} ago")
        return _Judgement(LOST, f"{intent.by} submitted it {in_words(age)} ago; no driver was found", intent.age_from)
    if driver.live or (driver.state == driver_states.UNKNOWN and age <= limit):
        words = f"the driver ({driver.detail}) has written no run record after {in_words(age)}"
        if age > limit:
            return _Judgement(STALLED, words, intent.age_from)
        return _Judgement(STARTING, driver.detail)
    if driver.state == driver_states.ENDED:
        words = f"the driver ended before it wrote a run record: {driver.detail}; the reason is in its log"
        ended = datetime.fromtimestamp(driver.ended_at, UTC) if driver.ended_at else intent.age_from
        return _Judgement(FAILED, words, ended)
    return _Judgement(LOST, f"the driver is gone and wrote no run record: {driver.detail}", intent.age_from)


def _living(stream: Stream, seen: Observation, run: RunRecord, intent: SubmitIntent | None) -> _Judgement:
    """A run that says it lives."""
    beat = datetime.fromisoformat(run.heartbeat)
    silent = (seen.now - beat).total_seconds()
    missed = max(run.heartbeat_seconds * MISSED_HEARTBEATS, 1.0)
    alive = _alive(seen, run, intent)
    if run.state == records.STARTING and alive is None and not (intent and intent.killed):
        # It may fence, read a large ledger or load state for minutes, and one of an earlier version is silent meanwhile.
        begun = datetime.fromisoformat(run.history[0]["time"])
        if (seen.now - begun).total_seconds() <= _seconds(stream, "start_timeout"):
            return _Judgement(STARTING, "")
    if alive is False or (alive is None and silent > missed):
        if intent and intent.killed:
            return _Judgement(STOPPED, f"killed on request of {intent.killed.get('by')}")
        detail = (
            seen.driver.detail
            if seen.driver
            else "its process is gone"
            if alive is False
            else "no runner can look at it"
        )
        if alive is False:
            return _Judgement(LOST, f"the driver is gone and has not recorded its end: {detail}", beat)
        return _Judgement(LOST, f"no heartbeat for {in_words(silent)}, and its driver cannot be seen: {detail}", beat)
    window = stream.stall_window.total_seconds()
    if run.state == records.STARTING:
        begun = datetime.fromisoformat(run.history[0]["time"])
        age = (seen.now - begun).total_seconds()
        if age > _seconds(stream, "start_timeout"):
            return _Judgement(STALLED, f"still starting after {in_words(age)}", begun)
        return _Judgement(STARTING, "")
    # A heartbeat that moves shows that the process lives, not that it works.
    watched = min(beat, datetime.fromisoformat(run.watched)) if run.watched else beat
    unwatched = (seen.now - watched).total_seconds()
    if unwatched > max(missed, window):
        return _Judgement(
            STALLED, f"its driver lives, but its watch over the query has not moved for {in_words(unwatched)}", watched
        )
    return _progressing(seen, run, window)


def _progressing(seen: Observation, run: RunRecord, window: float) -> _Judgement:
    in_doubt = seen.checkpoint.in_doubt if seen.checkpoint else None
    moved = _last_move(run)
    if seen.checkpoint and in_doubt is not None and seen.checkpoint.batch_timestamp_ms:
        moved = max(moved, datetime.fromtimestamp(seen.checkpoint.batch_timestamp_ms / 1000, UTC))
    quiet = (seen.now - moved).total_seconds()
    lag = _total(seen.lag)
    if quiet > window:
        since = f"nothing was committed for {in_words(quiet)}"
        if in_doubt is not None:
            return _Judgement(STALLED, f"batch {in_doubt} hangs: {since}", moved)
        if seen.kafka_error:
            return _Judgement(STALLED, f"{since}, and {seen.kafka_error}", moved)
        if lag:
            return _Judgement(STALLED, f"{lag:,} records wait: {since}", moved)
    if lag == 0 and in_doubt is None:
        return _Judgement(IDLE, "no input waits")
    return _Judgement(RUNNING, seen.kafka_error)


def _alive(seen: Observation, run: RunRecord, intent: SubmitIntent | None) -> bool | None:
    """Whether the driver lives: what its runner says, else what this machine's process table says, else unknown."""
    if intent is not None and seen.driver is not None:
        if seen.driver.live:
            return True
        if seen.driver.state in (driver_states.ENDED, driver_states.VANISHED):
            return False
    return is_alive_here(run)


def _last_move(run: RunRecord) -> datetime:
    """The last commit of this run, or the moment from which one could be expected: none is while no input waits."""
    times = [entry["time"] for entry in run.history if entry["state"] == records.RUNNING]
    times += [str(batch["ended"]) for batch in run.batches[-1:] if batch.get("ended")]
    times += [run.idle] if run.idle else []
    return max((datetime.fromisoformat(t) for t in times), default=datetime.fromtimestamp(0, UTC))


def _last_commit(run: RunRecord | None, checkpoint: Checkpoint | None) -> datetime | None:
    if run is not None and run.batches and run.batches[-1].get("ended"):
        return datetime.fromisoformat(str(run.batches[-1]["ended"]))
    if checkpoint is not None and checkpoint.committed is not None and checkpoint.batch_timestamp_ms:
        return datetime.fromtimestamp(checkpoint.batch_timestamp_ms / 1000, UTC)
    return None


def _rate(run: RunRecord | None) -> float | None:
    """Input rows per second over the last few batches that had any."""
    recent = [b for b in (run.batches if run else [])[-5:] if b.get("input_rows")]
    spent = sum(float(b.get("durations_ms", {}).get("triggerExecution") or 0) for b in recent)
    return round(sum(int(b["input_rows"]) for b in recent) / spent * 1000, 1) if spent else None


def _total(lag: tuple[PartitionLag, ...] | None) -> int | None:
    if lag is None or any(p.records is None for p in lag):
        return None
    return sum(p.records or 0 for p in lag)


def _seconds(stream: Stream, name: str) -> float:
    value = getattr(stream, name)
    return float(value.total_seconds())
