"""The rules by which a stream's status follows from run record, checkpoint, driver and Kafka. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from airflow_ckpt.streams.driver_state import ENDED, UNKNOWN, VANISHED
from airflow_ckpt.streams.durations import in_words
from airflow_ckpt.streams.observation import Observation, PartitionLag
from airflow_ckpt.streams.status import (
    ENDED_WELL,
    FAILED,
    HEALTHY,
    IDLE,
    LOST,
    NEW,
    RUNNING,
    STALLED,
    STARTING,
    STOPPED,
    StreamStatus,
)
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.streams.submit_intent import LONGEST_SUBMIT_SECONDS, SubmitIntent
from ckpt_stream.protocol.checkpoint.checkpoint_reader import CheckpointReport
from ckpt_stream.protocol.run_files import run_record, stop_requests
from ckpt_stream.protocol.run_files.run_record import MISSED_HEARTBEATS, RunRecord


@dataclass(frozen=True)
class _Judgement:
    state: str
    reason: str = ""
    since: datetime | None = None
    restart_may_help: bool = True


def derive(stream: Stream, seen: Observation) -> StreamStatus:
    """Derive the status from an observation. A driver that is not found never counts as successful."""
    run, intent = seen.run, seen.intent
    stop = pending_stop(seen.stop, run, intent)
    judged = _stopped(_judge(stream, seen, run, intent), seen.stop, stop, run)
    checkpoint = seen.position.checkpoint
    commit = _last_commit(run, checkpoint)
    failure = asdict(run.failure) if run and run.failure else None
    lag = _total(seen.position.lag)
    seconds = [p.seconds for p in seen.position.lag or () if p.seconds is not None]
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
        partitions=seen.position.lag or (),
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
    """The stop request, if no driver has obeyed it yet. A submit deletes it, a restart does not; a driver that was started by
    hand ignores a request from before its start."""
    if request is None or (run is None and intent is None):
        return None
    if run is None:
        return request
    if run.state in ENDED_WELL:
        return None
    return request if intent is not None or stop_requests.applies_to(request, run) else None


def _stopped(
    judged: _Judgement, request: Mapping[str, Any] | None, pending: Mapping[str, Any] | None, run: RunRecord | None
) -> _Judgement:
    """A broken stream with a stop request is STOPPED, so it is not restarted. If a driver obeyed, the reason names the user."""
    if pending is not None and judged.state in (FAILED, LOST):
        return _Judgement(STOPPED, f"stopped {_on_request(pending)}; it was {judged.state}: {judged.reason}")
    if judged.state == STOPPED and run is not None and request is not None and stop_requests.applies_to(request, run):
        return _Judgement(STOPPED, judged.reason or f"stopped {_on_request(request)}")
    return judged


def _on_request(request: Mapping[str, Any]) -> str:
    why = f" ({request['reason']})" if request.get("reason") else ""
    return f"on request of {request.get('by')} at {request.get('time')}{why}"


def _judge(stream: Stream, seen: Observation, run: RunRecord | None, intent: SubmitIntent | None) -> _Judgement:
    if run is not None:
        if run.state in run_record.NOT_ENDED:
            return _living(stream, seen, run, intent)
        ended = datetime.fromisoformat(run.history[-1]["time"])
        if run.failure is not None and run.state == run_record.FAILED:
            words = f"{run.failure.error}: {run.failure.message}"
            return _Judgement(FAILED, words, ended, run.failure.restart_may_help)
        return _Judgement(run.state, "", ended if run.state == run_record.FAILED else None)
    if intent is not None:
        return _submitted(stream, seen, intent)
    return _Judgement(NEW, "it was never started")


def _submitted(stream: Stream, seen: Observation, intent: SubmitIntent) -> _Judgement:
    """The state of a submitted driver that has not written a run record yet."""
    age, driver = intent.age(seen.now), seen.driver
    limit = _seconds(stream, "start_timeout")
    if intent.killed and not (driver and driver.live):
        return _Judgement(STOPPED, f"killed on request of {intent.killed.get('by')} before it wrote a run record")
    if intent.failed and not (driver and driver.live):
        return _Judgement(FAILED, intent.failed["message"], datetime.fromisoformat(intent.failed["time"]))
    if driver is None:
        if age < LONGEST_SUBMIT_SECONDS:
            return _Judgement(STARTING, f"submitted by {intent.by} {in_words(age)} ago")
        return _Judgement(LOST, f"{intent.by} submitted it {in_words(age)} ago; no driver was found", intent.age_from)
    if driver.live or (driver.state == UNKNOWN and age <= limit):
        words = f"the driver ({driver.detail}) has written no run record after {in_words(age)}"
        if age > limit:
            return _Judgement(STALLED, words, intent.age_from)
        return _Judgement(STARTING, driver.detail)
    if driver.state == ENDED:
        words = f"the driver ended before it wrote a run record: {driver.detail}; the reason is in its log"
        ended = datetime.fromtimestamp(driver.ended_at, UTC) if driver.ended_at else intent.age_from
        return _Judgement(FAILED, words, ended)
    return _Judgement(LOST, f"the driver is gone and wrote no run record: {driver.detail}", intent.age_from)


def _living(stream: Stream, seen: Observation, run: RunRecord, intent: SubmitIntent | None) -> _Judgement:
    """The state of a run whose record is STARTING or RUNNING."""
    beat = datetime.fromisoformat(run.heartbeat)
    silent = (seen.now - beat).total_seconds()
    missed = max(run.heartbeat_seconds * MISSED_HEARTBEATS, 1.0)
    alive = _alive(seen, intent)
    if run.state == run_record.STARTING and alive is None and not (intent and intent.killed):
        # The driver may fence, read a large ledger or load state for minutes; earlier versions wrote no heartbeat meanwhile.
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
            else "no runner can be asked for it"
        )
        if alive is False:
            return _Judgement(LOST, f"the driver is gone and has not recorded its end: {detail}", beat)
        return _Judgement(
            LOST, f"no heartbeat for {in_words(silent)}, and the state of its driver is unknown: {detail}", beat
        )
    window = stream.stall_window.total_seconds()
    if run.state == run_record.STARTING:
        begun = datetime.fromisoformat(run.history[0]["time"])
        age = (seen.now - begun).total_seconds()
        if age > _seconds(stream, "start_timeout"):
            return _Judgement(STALLED, f"still starting after {in_words(age)}", begun)
        return _Judgement(STARTING, "")
    # A new heartbeat shows that the process is alive, not that its query makes progress.
    watched = min(beat, datetime.fromisoformat(run.watched)) if run.watched else beat
    unwatched = (seen.now - watched).total_seconds()
    if unwatched > max(missed, window):
        return _Judgement(
            STALLED, f"its driver is alive, but has not looked at its query for {in_words(unwatched)}", watched
        )
    return _progressing(seen, run, window)


def _progressing(seen: Observation, run: RunRecord, window: float) -> _Judgement:
    in_doubt = seen.position.checkpoint.in_doubt if seen.position.checkpoint else None
    moved = _last_move(run)
    if seen.position.checkpoint and in_doubt is not None and seen.position.checkpoint.batch_timestamp_ms:
        moved = max(moved, datetime.fromtimestamp(seen.position.checkpoint.batch_timestamp_ms / 1000, UTC))
    quiet = (seen.now - moved).total_seconds()
    lag = _total(seen.position.lag)
    # Without the checkpoint it is unknown whether a batch has begun since.
    if quiet > window and seen.position.checkpoint_error is None:
        since = f"nothing was committed for {in_words(quiet)}"
        if in_doubt is not None:
            return _Judgement(STALLED, f"batch {in_doubt} is not committed yet: {since}", moved)
        if seen.position.kafka_error:
            return _Judgement(STALLED, f"{since}, and {seen.position.kafka_error}", moved)
        if lag:
            return _Judgement(STALLED, f"{lag:,} records are waiting: {since}", moved)
    if lag == 0 and in_doubt is None:
        return _Judgement(IDLE, "no input is waiting")
    return _Judgement(RUNNING, seen.position.kafka_error)


def _alive(seen: Observation, intent: SubmitIntent | None) -> bool | None:
    """Whether the driver lives: by its runner, else by the process table of the machine that looked, else unknown."""
    if intent is not None and seen.driver is not None:
        if seen.driver.live:
            return True
        if seen.driver.state in (ENDED, VANISHED):
            return False
    return seen.process_lives


def _last_move(run: RunRecord) -> datetime:
    """The last commit of this run, or the time since which a commit is due; without input no commit is due."""
    times = [entry["time"] for entry in run.history if entry["state"] == run_record.RUNNING]
    times += [str(batch["ended"]) for batch in run.batches[-1:] if batch.get("ended")]
    times += [run.idle] if run.idle else []
    return max((datetime.fromisoformat(t) for t in times), default=datetime.fromtimestamp(0, UTC))


def _last_commit(run: RunRecord | None, checkpoint: CheckpointReport | None) -> datetime | None:
    if run is not None and run.batches and run.batches[-1].get("ended"):
        return datetime.fromisoformat(str(run.batches[-1]["ended"]))
    if checkpoint is not None and checkpoint.committed is not None and checkpoint.batch_timestamp_ms:
        return datetime.fromtimestamp(checkpoint.batch_timestamp_ms / 1000, UTC)
    return None


def _rate(run: RunRecord | None) -> float | None:
    """Input rows per second over the last few batches with input."""
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
