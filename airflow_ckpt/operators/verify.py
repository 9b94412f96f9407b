"""Verifies a stream: reads the committed records of the sink, and reports whether every record is there exactly once."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

import ckpt_stream
from airflow_ckpt.exceptions import BadArgument, NoResult
from airflow_ckpt.metrics import count
from airflow_ckpt.notifications.events import UNVERIFIED
from airflow_ckpt.notifications.events import VIOLATED as VIOLATED_EVENT
from airflow_ckpt.operators.base import StreamOperator
from airflow_ckpt.operators.publishing import add_to_asset_event
from airflow_ckpt.operators.steps import Done, Event, Step, WaitForJob
from airflow_ckpt.streams.driver_state import Handle
from airflow_ckpt.streams.goal import REACHED
from airflow_ckpt.streams.templates import is_template
from airflow_ckpt.supervision.control import StreamControl
from airflow_ckpt.supervision.launch_request import LaunchRequest
from airflow_ckpt.verify.kept_verdicts import delete_job_documents, keep_plan, keep_verdict, read_plan, result_name
from airflow_ckpt.verify.scan_plan import Plan
from airflow_ckpt.verify.verdict import CLEAN, DEPTHS, RECOMPUTE, SINK, VIOLATED
from airflow_ckpt.verify.verified_until import not_yet_verified, record_verdict
from ckpt_stream.protocol.verification.consistent_cut import BatchRange

#: The Spark application that reads a sink.
SCAN_JOB = Path(str(ckpt_stream.__file__)).parent / "verify" / "sink_job.py"
ENGINES = ("auto", "here", "spark")
#: So many offsets take about a minute and a half in one process; a Spark job takes half a minute to start.
SPARK_ABOVE = 50_000_000
ON_VIOLATION = ("fail", "warn", "skip")
SINCE = ("last", "start")
#: How many batches go into XCom, which is shown on one page of the UI; the report beside the run record has all of them.
BATCHES_IN_XCOM = 20


class ExactlyOnceVerifyOperator(StreamOperator):
    """Verify end-to-end exactly-once by reading ledger and sink with `isolation.level=read_committed`.

    The stream may be running: the verification uses a consistent cut, which leaves batches in flight out. The verdict is written
    to the log as a table, to XCom and the asset's event as JSON, and beside the run record as an HTML page.

    :param depth: `ledger` (bookkeeping only), `sink` (every committed record is read; default), or `recompute` (the transform
        is run again as a batch and compared with the sink); templated
    :param since: `start` (default), `last` (after the batches that were verified last, so that only new data is read), or the
        number of a batch of the newest query in the ledger; templated
    :param until: last batch to verify; None: the newest
    :param count_aborted: also count the aborted copies that committed readers do not see
    :param engine: `here` reads the sink in this worker, `spark` as a Spark job beside the stream, `auto` (default) as a job
        if there are more than `spark_above` offsets to read; `recompute` is always a Spark job
    :param spark_above: see `engine`
    :param on_violation: `fail` the task (default), `warn` in the log, or `skip` the tasks after it
    :param on_unknown: the same for a verdict that is unknown (`fail` by default: unknown is not clean)
    """

    template_fields = ("stream", "timeout", "depth", "since")
    ui_color = "#e6f7e6"
    refused_event = UNVERIFIED

    def __init__(
        self,
        *,
        depth: str = SINK,
        since: str | int = "start",
        until: int | None = None,
        count_aborted: bool = False,
        engine: str = "auto",
        spark_above: int = SPARK_ABOVE,
        on_violation: str = "fail",
        on_unknown: str = "fail",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if engine not in ENGINES:
            raise BadArgument(f"engine={engine!r} is none of {', '.join(ENGINES)}.")
        for name, value in (("on_violation", on_violation), ("on_unknown", on_unknown)):
            if value not in ON_VIOLATION:
                raise BadArgument(f"{name}={value!r} is none of {', '.join(ON_VIOLATION)}.")
        self.depth, self.since, self.until, self.count_aborted = depth, since, until, count_aborted
        self.engine, self.spark_above = engine, spark_above
        self.on_violation, self.on_unknown = on_violation, on_unknown
        self._check()

    def _check(self) -> None:
        """Check depth and start, unless they are templates, which are checked after they are rendered."""
        if self.depth not in DEPTHS and not is_template(self.depth):
            raise BadArgument(f"depth={self.depth!r} is none of {', '.join(DEPTHS)}.")
        if isinstance(self.since, str) and self.since.isdecimal():
            self.since = int(self.since)
        if isinstance(self.since, str) and self.since not in SINCE and not is_template(self.since):
            raise BadArgument(f"since={self.since!r} is neither {' nor '.join(SINCE)} nor a batch number.")

    def begin(self, context: Any, control: StreamControl) -> Step:
        from airflow_ckpt.verify.conclusion import reach_verdict
        from airflow_ckpt.verify.planning import make_plan
        from airflow_ckpt.verify.verification import scan_in_process

        self._check()
        for name in ("depth", "since"):
            if is_template(value := getattr(self, name)):
                raise BadArgument(f"{name}={value!r} was not rendered.")
        if self.depth == RECOMPUTE:
            self.log.info("verifying all of %s at depth %s", self.stream.name, self.depth)
            return self._recompute(control)
        wanted = self._range(control)
        where = "from the start" if wanted.after is None else f"after batch {wanted.after}"
        where += f" of query {wanted.query}" if wanted.query else ""
        self.log.info("verifying %s %s at depth %s", self.stream.name, where, self.depth)
        subject = self._subject(control)
        plan = make_plan(subject, depth=self.depth, batches=wanted, count_aborted=self.count_aborted)
        if self.engine == "spark" or (self.engine == "auto" and plan.offsets > self.spark_above):
            return self._scan_by_spark(control, plan)
        verdict = reach_verdict(plan, scan_in_process(plan, subject.kafka, self._progress()))
        return self._publish(context, control, verdict.as_dict())

    def _subject(self, control: StreamControl) -> Any:
        from airflow_ckpt.verify.subject import Subject

        config, access = self.stream.config, control.access
        return Subject(
            stream=self.stream.name,
            kafka=access.kafka or {},
            sink_id=config.sink_id,
            sink=config.sink,
            group=config.group if config.offset_mirror == "on_checkpoint" else None,
            files=access.files,
            transaction_timeout=config.transaction_timeout,
        )

    def _recompute(self, control: StreamControl) -> Step:
        """Run the application once more over the committed range, as a batch, and compare."""
        token = secrets.token_hex(6)
        document = self.stream.document(control.access.kafka or {}, token)
        document["recompute"] = {"result": self._below_checkpoint(result_name(token))}
        handle = control.start_job(LaunchRequest(token, document=document))
        return WaitForJob(handle.as_dict(), "recomputed", result_name(token))

    def recomputed(self, context: Any, control: StreamControl, event: Event) -> Step:
        from airflow_ckpt.verify.checks.replays_check import add_replays
        from airflow_ckpt.verify.recompute_verdict import verdict_of

        token, text = self._read_result(control, event)
        self.log.info("the job %s has compared", token)
        verdict = verdict_of(text, self.stream.name)
        add_replays(verdict, control.access.files)
        step = self._publish(context, control, verdict.as_dict())
        delete_job_documents(control.access.files, token)
        return step

    def _scan_by_spark(self, control: StreamControl, plan: Plan) -> Step:
        token = secrets.token_hex(6)
        keep_plan(control.access.files, token, plan)
        document = plan.job(control.access.kafka or {}, self._below_checkpoint(result_name(token)))
        self.log.info("%s offsets are read by a Spark job", f"{plan.offsets:,}")
        handle = control.start_job(LaunchRequest(token, document=document, application=str(SCAN_JOB)))
        return WaitForJob(handle.as_dict(), "scanned", result_name(token))

    def scanned(self, context: Any, control: StreamControl, event: Event) -> Step:
        from airflow_ckpt.verify.conclusion import reach_verdict
        from ckpt_stream.protocol.verification.scan_result import scans_from_json

        token, text = self._read_result(control, event)
        verdict = reach_verdict(read_plan(control.access.files, token), scans_from_json(text))
        step = self._publish(context, control, verdict.as_dict())
        delete_job_documents(control.access.files, token)
        return step

    def _below_checkpoint(self, name: str) -> str:
        return f"{self.stream.checkpoint.rstrip('/')}/{name}"

    def _read_result(self, control: StreamControl, event: Event) -> tuple[str, str]:
        """The job's result. A job that ended without a result has failed, whatever its exit code."""
        handle = Handle.from_dict(event["handle"])
        text = control.access.files.read(result_name(handle.token))
        if event["outcome"] != REACHED or text is None:
            self.log.error("the end of the job's log:\n%s", control.runner.log_tail(handle, 30))
            # A job that timed out would continue beside the job of the next try.
            control.end_job(handle)
            raise NoResult(f"The verification's Spark job gave no result: {event['reason']}", kind="no_result")
        return handle.token, text

    def _range(self, control: StreamControl) -> BatchRange:
        if isinstance(self.since, int):
            return BatchRange(self.since - 1 if self.since > 0 else None, self.until)
        if self.since == "start":
            return BatchRange(until=self.until)
        return replace(not_yet_verified(control.access.files, self.depth), until=self.until)

    def _progress(self) -> Any:
        """A function that logs the progress at every tenth of the offsets."""
        logged = [-1]

        def log_progress(done: int, total: int) -> None:
            tenth = done * 10 // total if total else 0
            if tenth > logged[0]:
                logged[0] = tenth
                self.log.info("read %s of %s offsets", f"{done:,}", f"{total:,}")

        return log_progress

    def _publish(self, context: Any, control: StreamControl, document: dict[str, Any]) -> Step:
        """Write the verdict to log, checkpoint folder, asset and XCom; then apply on_violation or on_unknown."""
        from airflow_ckpt.verify.report import as_plain_text

        self.log.info("\n%s", as_plain_text(document))
        report = self._below_checkpoint(keep_verdict(control.access.files, document))
        self.log.info("the report with its plots: %s", report)
        verdict = document["verdict"]
        summary = {k: v for k, v in document.items() if k != "batches"}
        summary["findings"] = document["findings"][:BATCHES_IN_XCOM]
        add_to_asset_event(
            context, self.stream, verdict=verdict, verified_until=document.get("verified_until"), report=report
        )
        record_verdict(control.access.files, document)
        value = {**summary, "batches": document["batches"][-BATCHES_IN_XCOM:], "report": report}
        context["ti"].xcom_push(key="verdict", value=value)
        if verdict == CLEAN:
            count("verified", self.stream.name)
        else:
            self._act_on(context, verdict, document)
        return Done(value)

    def _act_on(self, context: Any, verdict: str, document: dict[str, Any]) -> None:
        """Apply on_violation or on_unknown to a verdict that is not clean."""
        words = "; ".join(f["what"] for f in document["findings"][:3])
        message = f"{self.stream.name}: the verdict is {verdict}: {words}"
        self.send_event(context, VIOLATED_EVENT if verdict == VIOLATED else UNVERIFIED, message)
        action = self.on_violation if verdict == VIOLATED else self.on_unknown
        if action == "fail":
            raise AirflowFailException(message)
        self.log.warning("%s", message)
        if action == "skip":
            raise AirflowSkipException(message)
