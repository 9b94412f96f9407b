"""What Airflow and the drivers keep beside a checkpoint, and in the work folders of the drivers."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.exceptions import SubmitFailed
from airflow_ckpt.runners import process
from ckpt_stream.driver import start_of_run
from ckpt_stream.driver.batch_progress import BatchProgress
from ckpt_stream.driver.failure import describe
from ckpt_stream.driver.source_loss import SourceLoss
from ckpt_stream.kafka import ledger_comparison, ledger_repair
from ckpt_stream.kafka.ledger_safety import Durability
from ckpt_stream.kafka.topics import Topic
from ckpt_stream.protocol.data_loss import LostRange
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord
from ckpt_stream.protocol.run_files.record_files import ADOPTION, POISON, list_to_json, now
from ckpt_stream.protocol.run_files.replays import note_replay
from tests.ckpt_stream.moving import QUERY, MovingCheckpoint
from tests.ckpt_stream.samples import held, sink_of
from tests.compatibility.site import FAILS, RUNS, Site, write_run

POISON_TEXT = 'ckpt-poison:{"topic":"orders","partition":0,"offset":29,"once":true,"reason":"the word ERROR"}'


def capture(site: Site) -> None:
    """Batch 3 is in doubt; one driver failed, one was killed, one stopped, and one runs and is asked to stop."""
    write_spark_log(site.files, begun=3)
    write_decisions_of_users(site.files)
    with site.without_kafka():
        write_runs(site)


def write_spark_log(files: FsspecFiles, *, begun: int) -> None:
    spark = MovingCheckpoint([], begun=begun)
    spark.move(1)
    for name, text in spark.texts.items():
        files.write(name, text)
    files.write("sources/0/0", '\0v1\n{"orders": {"0": 0}}')


def write_decisions_of_users(files: FsspecFiles) -> None:
    """A replay that differed and one that was accepted, a ledger that was adopted, a batch that was planned anew."""
    note_replay(files, QUERY, 1, [0], run="20261117T120000.000000-1a2b3c", accepted=False)
    lane = held(3, 0, 2, query_id=QUERY)
    with patch.multiple(ledger_repair, Topics=lambda kafka: _topics(), read_ledger_ends=lambda *given: [lane, None]):
        ledger_repair.accept_differing_replay(files, {}, "orders", by="ann@worker-1.example")
    with TemporaryDirectory() as empty:
        files.write(ADOPTION, adoption(FsspecFiles(empty)))
    loss = LostRange("orders", 0, 30, 35)
    config: Any = SimpleNamespace(source=("orders",), source_pattern=None, accepted_loss=(loss,), checkpoint="c")
    next(iter(SourceLoss(files, _topics(), config).batches(partly_in_sink=False)))  # type: ignore[arg-type]


def adoption(files: Any) -> str:
    """What is noted when a query on an empty checkpoint takes over the ledger of another one."""
    ledger: list[LedgerRecord | None] = [held(7, 0, 1, query_id="the-query-before")]
    no_writes: Any = {name: lambda *given, **more: None for name in ("fence_lanes", "ensure_ledger", "write_anchors")}
    with (
        patch.object(ledger_comparison, "read_ledger_ends", lambda *given: ledger),
        patch.multiple(start_of_run, **no_writes),
    ):
        start_of_run.reconcile_at_start(
            files, _topics(), {}, sink_of(), run_id="r", application="", timeout_ms=1, adopt_ledger=True
        )
    return str(files.read(ADOPTION))


def _topics() -> Any:
    """A broker that has every topic."""
    return SimpleNamespace(
        find=lambda name, **_: Topic(name, "ledger-1", 1),
        get=lambda name, role: Topic(name, "topic-1", 1),
        durability=lambda *topics: [Durability(t.name, ((1,),), {"cleanup.policy": "compact"}) for t in topics],
        wait_until_readable=lambda name: True,
        source_partitions=lambda *given: {"orders": [0]},
        first_offsets=lambda partitions: {"orders": {0: 35}},
    )


def write_runs(site: Site) -> None:
    """Five drivers, one after the other, of which one is not there: intents, restart history, run records, work folders."""
    first = site.control("dag.submit manual__1")
    site.command = FAILS
    first.submit(submission="dag manual__1")
    site.wait_for_the_end(site.token)
    failure = describe(RuntimeError(POISON_TEXT), BatchProgress(current=(2, 0.0), error=None))
    failed = write_run(site, "STARTING", "RUNNING", "FAILED", failure=failure, batches=2)
    # The driver adds these to what it found in the record's text.
    poison = {**(failure.poison or {}), "run": failed.run, "batch": failure.batch, "time": now()}
    site.files.write(POISON, list_to_json([poison]))

    site.command = RUNS
    first.resume(first.look_before_start())
    write_run(site, "STARTING", "RUNNING", batches=1)
    first.kill()

    second = site.control("dag.submit manual__2")
    second.submit(submission="dag manual__2")
    write_run(site, "STARTING", "RUNNING", "STOPPED", batches=3)
    second.kill()

    third = site.control("dag.supervise manual__3")
    with patch.object(process, "LAUNCHER", Path("/opt/no-launcher.py")), suppress(SubmitFailed):
        third.submit(submission="dag manual__3")
    third.submit(submission="dag manual__3 again")
    write_run(site, "STARTING", "RUNNING", batches=2)
    site.control("dag.submit manual__4").submit(submission="dag manual__4")
    third.request_stop("maintenance")
