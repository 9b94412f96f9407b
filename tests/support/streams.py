"""A stream as tests see it: feed it, run it, kill it, and look at what is in the sink."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.local.jars.jvm_options import driver_jvm_options
from airflow_ckpt.local.jars.stack_jars import spark_kafka_jars
from ckpt_stream.protocol import crash_points
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord, ledger_topic
from ckpt_stream.protocol.run_files.record_files import RUNS
from ckpt_stream.protocol.run_files.run_record import RunRecord
from ckpt_stream.protocol.settings.config import StreamConfig
from tests.support.kafka_io import Record, produce, read_all

APPLICATIONS = Path(__file__).parents[2] / "spark"
RUN_SECONDS = 120


def copy(events: Any) -> Any:
    """The simplest transform."""
    return events.select("key", "value")


def numbered(count: int, first: int = 0) -> list[str]:
    """Values that sort as they are counted."""
    return [f"value-{i:05d}" for i in range(first, first + count)]


@dataclass
class Ended:
    """How a driver ended."""

    code: int
    log: str

    @property
    def last_line(self) -> str:
        return self.log.strip().splitlines()[-1]


@dataclass
class StreamUnderTest:
    """A stream between two topics, with its checkpoint in a folder of the test."""

    application: str
    folder: Path
    kafka: Mapping[str, Any]
    source: str
    sink: str
    settings: dict[str, Any] = field(default_factory=dict)
    #: A checkpoint that is not in the folder: as the driver names it, and as the test looks at it.
    location: str | None = None
    storage: FsspecFiles | None = None

    @property
    def name(self) -> str:
        return str(self.settings.get("name", self.sink.replace("sink", "stream")))

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def document(self, **changes: Any) -> dict[str, Any]:
        return {
            "name": self.name,
            "checkpoint": self.location or str(self.checkpoint),
            "source": [self.source],
            "sink": self.sink,
            "kafka": dict(self.kafka),
            "drain": True,
            **self.settings,
            **changes,
        }

    def config(self, **changes: Any) -> StreamConfig:
        return StreamConfig(**self.document(**changes))

    # Feeding and looking

    def feed(self, *values: str, keys: int = 10) -> None:
        """Write values to the source, each with one of a few keys."""
        produce(self.kafka, self.source, [(f"key-{i % keys}", value) for i, value in enumerate(values)])

    def committed(self) -> list[Record]:
        return read_all(self.kafka, self.sink)

    def values(self) -> list[str]:
        """The sink's values under read_committed, in order of their names."""
        return sorted((r.value or b"").decode() for r in self.committed())

    def hidden(self) -> int:
        """Records of aborted transactions: read_uncommitted sees them, read_committed does not."""
        return len(read_all(self.kafka, self.sink, isolation="read_uncommitted")) - len(self.committed())

    def ledger(self) -> list[LedgerRecord]:
        found = read_all(self.kafka, ledger_topic(self.config().sink_id))
        return [LedgerRecord.from_json(r.value) for r in found if r.value is not None]

    def runs(self) -> list[RunRecord]:
        names = [n for n in self.files.names(RUNS) if n.endswith(".json") and not n.startswith(".")]
        texts = [self.files.read(f"{RUNS}/{name}") for name in names]
        return [RunRecord.from_json(text) for text in texts if text is not None]

    def last_batch(self, log: str) -> int | None:
        return max((int(name) for name in self.files.names(log) if name.isdigit()), default=None)

    @property
    def files(self) -> FsspecFiles:
        """The checkpoint's files, wherever they are."""
        return self.storage or FsspecFiles(str(self.checkpoint))

    # Running

    def drive(self, spark: Any, transform: Any, **changes: Any) -> tuple[int, str]:
        """Run the driver in this process: exit code and last line."""
        from ckpt_stream.driver.driver import Driver

        return Driver(spark, self.config(**changes), transform).run()

    def failed_for_good(self, outcome: tuple[int, str], error: str, *words: str) -> None:
        """The run ended with this error, with these words, and with the note that no restart helps."""
        code, line = outcome
        assert code == 1, line
        assert f"FAILED: {error}: " in line
        for word in words:
            assert word in line, f"{word!r} is not in: {line}"
        failure = self.runs()[-1].failure
        assert failure is not None
        assert failure.restart_may_help is False

    def start(
        self,
        *,
        master: str = "local[2]",
        env: Mapping[str, str] | None = None,
        conf: Mapping[str, str] | None = None,
        submit: Sequence[str] = (),
        **changes: Any,
    ) -> Running:
        """Submit the application as a driver of its own; `conf` and `submit` are further arguments of spark-submit."""
        document = self.document(**changes)
        log = self.folder / f"driver-{len(list(self.folder.glob('driver-*.log')))}.log"
        jars = ",".join(str(jar) for jar in sorted(spark_kafka_jars().glob("*.jar")))
        argv = [str(Path(sys.executable).parent / "spark-submit"), "--master", master, "--jars", jars]
        settings = {
            "spark.ui.enabled": "false",
            "spark.log.level": "WARN",
            "spark.driver.extraJavaOptions": driver_jvm_options(),
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.host": "127.0.0.1",
            **(conf or {}),
        }
        for name, value in settings.items():
            argv += ["--conf", f"{name}={value}"]
        argv += [*submit, str(APPLICATIONS / f"{self.application}.py"), json.dumps(document)]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **(env or {})}
        with log.open("wb") as out:
            process = subprocess.Popen(
                argv, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        return Running(process, log)

    def run(self, **options: Any) -> Ended:
        """Submit the application and wait for its end."""
        return self.start(**options).wait()

    def crash_at(self, point: str, *, kill: str = "both", **options: Any) -> Crashed:
        """Run with a crash point armed; the returned object tells whether it hit."""
        batch, lane = options.pop("batch", None), options.pop("lane", None)
        once = self.folder / f"hit-{point}-{len(list(self.folder.glob('hit-*')))}"
        crash = {"point": point, "kill": kill, "once": str(once), "batch": batch, "lane": lane}
        env = {**options.pop("env", {}), crash_points.ENVIRONMENT: json.dumps(crash)}
        ended = self.run(env=env, **options)
        return Crashed(ended.code, ended.log, json.loads(once.read_text()) if once.exists() else None)


@dataclass
class Crashed(Ended):
    #: What the dying process wrote down: point, batch, lane and pid. None: the fault did not hit.
    hit: dict[str, Any] | None


@dataclass
class Running:
    process: subprocess.Popen[bytes]
    log: Path

    def wait(self, seconds: float = RUN_SECONDS) -> Ended:
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"the driver did not end within {seconds} s:\n{self.log.read_text()[-4000:]}"
            ) from None
        return Ended(code, self.log.read_text())

    def kill(self) -> None:
        """Kill the whole driver: the JVM and its Python child."""
        import signal

        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
