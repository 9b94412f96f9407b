"""One of the demo's two streams: its DAG run, its driver's progress, and the kills of its driver."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.checkpoint.runs import read_run, run_names
from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.airflow.rest_api import FINAL_STATES, AirflowApi
from ckpt_stream.errors import KafkaUnreachable
from ckpt_stream.kafka.ask_topic_ends import topic_ends
from ckpt_stream.protocol.checkpoint.checkpoint_reader import CheckpointReport, read_checkpoint
from ckpt_stream.protocol.crash_points import AFTER_LAST_LANE, COMMIT_SENT, MID_PRODUCE
from ckpt_stream.protocol.run_files import record_files, stop_requests

DAG = "ip_count_exactly_once"
#: Where the drivers die: with half of a transaction written, and when its commit is sent but not answered, so that its
#: outcome is unknown. Spark's own sink has no transactions: its driver dies after a batch is written but not yet committed.
KILLS = {
    "exactly_once": ((MID_PRODUCE, "both", 2), (COMMIT_SENT, "both", 4)),
    "at_least_once": ((AFTER_LAST_LANE, "driver", 2), (AFTER_LAST_LANE, "driver", 4)),
}


@dataclass
class DemoStream:
    """A stream that reads the demo's log."""

    name: str
    guarantee: str
    home: Path
    source: str
    sink: str
    run_id: str = ""
    hits: list[dict[str, Any]] = field(default_factory=list)

    @property
    def title(self) -> str:
        return "this sink" if self.guarantee == "exactly_once" else "Spark's own sink"

    @property
    def files(self) -> FsspecFiles:
        return FsspecFiles(str(self.home / "airflow" / "checkpoints" / self.name))

    def _marker(self, number: int) -> Path:
        return self.home / f"{self.name}.kill{number}"

    def trigger(self, api: AirflowApi) -> None:
        """Start the DAG as a user does, with the form filled in."""
        kills = [
            {"point": point, "kill": victim, "batch": batch, "once": str(self._marker(number))}
            for number, (point, victim, batch) in enumerate(KILLS[self.guarantee], 1)
        ]
        self.run_id = api.trigger(
            DAG,
            {
                "name": self.name,
                "source": self.source,
                "sink": self.sink,
                "guarantee": self.guarantee,
                "trigger_seconds": 1,
                # Enough batches for two kills, however long the driver takes to start.
                "max_offsets": 1500,
                "batches": 6,
                "crash": json.dumps(kills),
            },
        )

    def new_kills(self) -> list[str]:
        """A line for each kill since the last call."""
        lines = []
        for number in range(len(self.hits) + 1, len(KILLS[self.guarantee]) + 1):
            marker = self._marker(number)
            try:
                hit = json.loads(marker.read_text())
            except (OSError, ValueError):
                break
            self.hits.append({**hit, "time": marker.stat().st_mtime})
            lines.append(f"{self.title}: driver killed with SIGKILL at {hit['point']} of batch {hit['batch']}")
        return lines

    def committed(self) -> CheckpointReport:
        """The state of the stream's checkpoint."""
        return read_checkpoint(self.files, with_metadata=False)

    def lag(self, admin: Any, seen: CheckpointReport) -> int:
        """Records of the log that the stream has not read."""
        ends, offsets = topic_ends(admin, self.source), seen.committed_offsets.get(self.source, {})
        if ends is None:
            raise StackError(f"the topic {self.source} is gone: it was deleted while the demo was running")
        return sum(max(0, end - offsets.get(str(p), 0)) for p, end in ends.stable.items())

    def state(self, api: AirflowApi) -> str:
        return api.run_state(DAG, self.run_id)

    def is_over(self, api: AirflowApi) -> bool:
        return self.state(api) in FINAL_STATES

    def progress_line(self, api: AirflowApi, admin: Any) -> str:
        """One line about the stream's progress."""
        tasks = api.task_states(DAG, self.run_id)
        busy = [task for task, state in tasks.items() if state in ("running", "deferred", "queued", "scheduled")]
        seen = self.committed()
        try:
            lag = f"{self.lag(admin, seen):,}"
        except KafkaUnreachable:
            lag = "unknown"
        parts = [
            f"batch {seen.committed}" if seen.committed is not None else "no batch yet",
            f"lag {lag}",
            f"{len(self.hits)} kill(s)",
        ]
        parts.append(f"in {', '.join(busy)}" if busy else f"run {self.state(api)}")
        return f"{self.title:<17}{', '.join(parts)}"

    def batches(self) -> list[tuple[float, int]]:
        """(time, records) of every batch that was committed, over all runs."""
        from datetime import datetime

        files, found = self.files, {}
        for name in run_names(files):
            run = read_run(files, name)
            for batch in run.batches if run else []:
                found[batch["batch"]] = (datetime.fromisoformat(batch["ended"]).timestamp(), batch["input_rows"] or 0)
        return [found[number] for number in sorted(found)]

    def request_stop(self) -> None:
        self.files.write(record_files.STOP, stop_requests.stop_request("the demo", "the demo is over"))

    def report(self) -> str | None:
        """The newest HTML report of a verification."""
        names = [name for name in self.files.names("_ckpt/verdicts") if name.endswith(".html")]
        return f"{self.files.root}/_ckpt/verdicts/{names[-1]}" if names else None
