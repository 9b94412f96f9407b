"""Verifies a stream: reads the sink as a committed reader sees it, and says whether every record is there once."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from airflow_ckpt.checkpoint.runs import current_run
from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.metrics import count
from airflow_ckpt.notifications.tell import UNVERIFIED
from airflow_ckpt.notifications.tell import VIOLATED as VIOLATED_EVENT
from airflow_ckpt.operators.base import Done, Event, Job, Step, StreamOperator
from airflow_ckpt.runners.base import Handle
from airflow_ckpt.streams.control import Order, StreamControl
from airflow_ckpt.streams.goal import REACHED
from airflow_ckpt.streams.stream import is_template
from airflow_ckpt.verify import mark
from airflow_ckpt.verify.cut import Range
from airflow_ckpt.verify.verdict import CLEAN, DEPTHS, RECOMPUTE, SINK, VIOLATED
from ckpt_stream.run_record import FOLDER

ENGINES = ("auto", "here", "spark")
#: About a minute and a half in one process; a Spark job takes half a minute to get up.
SPARK_ABOVE = 50_000_000
ON_VIOLATION = ("fail", "warn", "skip")
SINCE = ("last", "start")
VERDICTS = f"{FOLDER}/verdicts"
KEEP_VERDICTS = 100
#: An XCom is for a page of the UI, not for the whole history; the report beside the run record has everything.
BATCHES_IN_XCOM = 20


class ExactlyOnceVerifyOperator(StreamOperator):
    """Verify end-to-end exactly-once by reading ledger and sink with `isolation.level=read_committed`.

    The stream may run meanwhile: the verification takes a consistent cut and leaves work in flight out. The verdict goes to
    the log as a table, to XCom and the asset's event as JSON, and beside the run record as an HTML page.

    :param depth: `ledger` (bookkeeping only), `sink` (every committed record is read; default), or `recompute` (the transform
        is run again as a batch and compared with the sink); templated
    :param since: `start` (default), `last` (after what was verified last: costs as much as the new data), or the number of a
        batch of the newest query in the ledger; templated
    :param until: last batch to verify; None: the newest
    :param count_aborted: also count the aborted copies that committed readers do not see
    :param engine: `here` reads the sink in this worker, `spark` as a Spark job beside the stream, `auto` (default) as a job
        if there are more than `spark_above` offsets to read; `recompute` is always a Spark job
    :param spark_above: see `engine`
    :param on_violation: `fail` the task (default), `warn` in the log, or `skip` what comes after it
    :param on_unknown: the same for a verdict that could not be reached (`fail` by default: unknown is not clean)
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
            raise CkptError(f"engine={engine!r} is none of {', '.join(ENGINES)}.")
        for name, value in (("on_violation", on_violation), ("on_unknown", on_unknown)):
            if value not in ON_VIOLATION:
                raise CkptError(f"{name}={value!r} is none of {', '.join(ON_VIOLATION)}.")
        self.depth, self.since, self.until, self.count_aborted = depth, since, until, count_aborted
        self.engine, self.spark_above = engine, spark_above
        self.on_violation, self.on_unknown = on_violation, on_unknown
        self._check()

    def _check(self) -> None:
        """Depth and start, as far as they are known: templates are looked at when they are rendered."""
        if self.depth not in DEPTHS and not is_template(self.depth):
            raise CkptError(f"depth={self.depth!r} is none of {', '.join(DEPTHS)}.")
        if isinstance(self.since, str) and self.since.isdecimal():
            self.since = int(self.since)
        if isinstance(self.since, str) and self.since not in SINCE and not is_template(self.since):
            raise CkptError(f"since={self.since!r} is neither {' nor '.join(SINCE)} nor a batch number.")

    def begin(self, context: Any, control: StreamControl) -> Step:
        from airflow_ckpt.verify.conclusion import conclude
        from airflow_ckpt.verify.verification import plan, scan_here

        self._check()
        for name in ("depth", "since"):
            if is_template(value := getattr(self, name)):
                raise CkptError(f"{name}={value!r} was not rendered.")
        if self.depth == RECOMPUTE:
            self.log.info("verifying all of %s at depth %s", self.stream.name, self.depth)
            return self._recompute(control)
        wanted = self._range(control)
        where = "from the start" if wanted.after is None else f"after batch {wanted.after}"
        where += f" of query {wanted.query}" if wanted.query else ""
        self.log.info("verifying %s %s at depth %s", self.stream.name, where, self.depth)
        subject = self._subject(control)
        made = plan(subject, depth=self.depth, batches=wanted, count_aborted=self.count_aborted)
        if self.engine == "spark" or (self.engine == "auto" and made.offsets > self.spark_above):
            return self._scan_by_spark(control, made)
        verdict = conclude(made, scan_here(made, subject.kafka, self._progress()))
        return self._conclude(context, control, verdict.as_dict())

    def _subject(self, control: StreamControl) -> Any:
        from airflow_ckpt.verify.verification import Subject

        config, sources = self.stream.config, control.sources
        return Subject(
            stream=self.stream.name,
            kafka=sources.kafka or {},
            sink_id=config.sink_id,
            sink=config.sink,
            group=config.group if config.offset_mirror == "on_checkpoint" else None,
            files=sources.files,
            transaction_timeout=config.transaction_timeout,
        )

    def _recompute(self, control: StreamControl) -> Step:
        """Run the application once more over the committed range, as a batch, and compare."""
        token = secrets.token_hex(6)
        document = json.loads(self.stream.document(control.sources.kafka or {}, token))
        document["recompute"] = {"result": self._result(token)}
        handle = control.start_job(Order(token, document=document))
        return Job(handle.as_dict(), "recomputed", f"{VERDICTS}/{token}.result")

    def recomputed(self, context: Any, control: StreamControl, event: Event) -> Step:
        from airflow_ckpt.verify.recompute import verdict_of
        from airflow_ckpt.verify.replays import add_replays

        token, text = self._read_result(control, event)
        self.log.info("the job %s has compared", token)
        verdict = verdict_of(text, self.stream.name)
        add_replays(verdict, control.sources.files)
        step = self._conclude(context, control, verdict.as_dict())
        self._forget(control, token)
        return step

    def _scan_by_spark(self, control: StreamControl, made: Any) -> Step:
        from ckpt_stream import sink_job

        token = secrets.token_hex(6)
        # The conclusion is drawn when the job is done, maybe by another worker.
        control.sources.files.write(f"{VERDICTS}/{token}.plan", made.to_json())
        document = made.job(control.sources.kafka or {}, self._result(token))
        self.log.info("%s offsets are read by a Spark job", f"{made.offsets:,}")
        handle = control.start_job(Order(token, document=document, application=str(sink_job.__file__)))
        return Job(handle.as_dict(), "scanned", f"{VERDICTS}/{token}.result")

    def scanned(self, context: Any, control: StreamControl, event: Event) -> Step:
        from airflow_ckpt.verify.conclusion import conclude
        from airflow_ckpt.verify.plan import Plan
        from ckpt_stream.sink_facts import scans_from_json

        token, text = self._read_result(control, event)
        made = Plan.from_json(control.sources.files.read(f"{VERDICTS}/{token}.plan") or "{}")
        step = self._conclude(context, control, conclude(made, scans_from_json(text)).as_dict())
        self._forget(control, token)
        return step

    def _forget(self, control: StreamControl, token: str) -> None:
        """Delete a job's plan and result. After a verdict that fails the task this is not reached: they are kept."""
        for kind in ("plan", "result"):
            control.sources.files.remove(f"{VERDICTS}/{token}.{kind}")

    def _result(self, token: str) -> str:
        return f"{self.stream.checkpoint.rstrip('/')}/{VERDICTS}/{token}.result"

    def _read_result(self, control: StreamControl, event: Event) -> tuple[str, str]:
        """The job's result. A job that ended without one has failed, whatever its exit code."""
        handle = Handle.from_dict(event["handle"])
        text = control.sources.files.read(f"{VERDICTS}/{handle.token}.result")
        if event["outcome"] != REACHED or text is None:
            self.log.error("the end of the job's log:\n%s", control.runner.log_tail(handle, 30))
            # One that is not over in time would go on beside the next try's.
            control.end_job(handle)
            raise CkptError(f"The verification's Spark job gave no result: {event['reason']}")
        return handle.token, text

    def _range(self, control: StreamControl) -> Range:
        if isinstance(self.since, int):
            return Range(self.since - 1 if self.since > 0 else None, self.until)
        if self.since == "start":
            return Range(until=self.until)
        return replace(mark.not_yet_verified(control.sources.files, self.depth), until=self.until)

    def _progress(self) -> Any:
        """A line in the log at every tenth of the way."""
        said = [-1]

        def say(done: int, total: int) -> None:
            tenth = done * 10 // total if total else 0
            if tenth > said[0]:
                said[0] = tenth
                self.log.info("read %s of %s offsets", f"{done:,}", f"{total:,}")

        return say

    def _conclude(self, context: Any, control: StreamControl, document: dict[str, Any]) -> Step:
        from airflow_ckpt.verify.report import as_html, as_text

        self.log.info("\n%s", _plain(as_text(document)))
        name = f"{VERDICTS}/{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
        control.sources.files.write(f"{name}.json", json.dumps(document))
        control.sources.files.write(f"{name}.html", as_html(document, self._run_batches(control)))
        report = f"{self.stream.checkpoint.rstrip('/')}/{name}.html"
        self.log.info("the report with its plots: %s", report)
        verdict = document["verdict"]
        summary = {k: v for k, v in document.items() if k != "batches"}
        summary["findings"] = document["findings"][:BATCHES_IN_XCOM]
        self._note_on_asset(context, verdict=verdict, verified_until=document.get("verified_until"), report=report)
        mark.note(control.sources.files, document)
        self._prune(control)
        value = {**summary, "batches": document["batches"][-BATCHES_IN_XCOM:], "report": report}
        context["ti"].xcom_push(key="verdict", value=value)
        if verdict == CLEAN:
            count("verified", self.stream.name)
        else:
            self._object(context, verdict, document)
        return Done(value)

    def _run_batches(self, control: StreamControl) -> list[dict[str, Any]]:
        """What the newest run says about its batches: lag, and the time each took."""
        run = current_run(control.sources.files)
        return run.batches if run else []

    def _prune(self, control: StreamControl) -> None:
        """Keep the newest verdicts, two files each: a watchdog leaves one every few minutes."""
        files = control.sources.files
        # A verdict is named by its time; a job's plan and result by its token, which has no T.
        verdicts = [name for name in files.names(VERDICTS) if "T" in name]
        for name in verdicts[: -2 * KEEP_VERDICTS]:
            files.remove(f"{VERDICTS}/{name}")

    def _object(self, context: Any, verdict: str, document: dict[str, Any]) -> None:
        """The verdict is not clean: do what the user chose."""
        words = "; ".join(f["what"] for f in document["findings"][:3])
        message = f"{self.stream.name}: the verdict is {verdict}: {words}"
        self._tell(context, VIOLATED_EVENT if verdict == VIOLATED else UNVERIFIED, message)
        action = self.on_violation if verdict == VIOLATED else self.on_unknown
        if action == "fail":
            raise AirflowFailException(message)
        self.log.warning("%s", message)
        if action == "skip":
            raise AirflowSkipException(message)


def _plain(renderable: Any) -> str:
    """A rich table as text for a log."""
    from rich.console import Console

    text = StringIO()
    Console(file=text, width=120, no_color=True).print(renderable)
    return text.getvalue()
