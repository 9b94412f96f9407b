"""The plan of a verification: everything except reading the sink, which this process or a Spark job does.

A plan can be kept as JSON until the job has ended; then `reach_verdict` compares the job's result with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

from airflow_ckpt.exceptions import OtherVersion
from airflow_ckpt.verify.checks.audit_check import expected_lanes
from airflow_ckpt.verify.verdict import BatchSums, Finding, Verdict
from ckpt_stream.protocol.ledger.ledger_batches import Batch
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord
from ckpt_stream.protocol.settings.secret_names import is_secret
from ckpt_stream.protocol.verification.consistent_cut import ConsistentCut
from ckpt_stream.protocol.verification.scan_result import Boundaries

PLAN_FORMAT = 2
#: The role of a topic in the stream.
SINK_TOPIC, DEAD_LETTER_TOPIC = "sink", "dead_letters"


@dataclass(frozen=True)
class PlannedTopic:
    """One topic to be read: the sink, or a dead-letter topic."""

    name: str
    role: str
    #: The sums of this topic in the ledger.
    batches: Sequence[Batch]
    start: Mapping[int, int]
    end: Mapping[int, int]
    boundaries: Boundaries
    #: Every record must have the audit header.
    audited: bool = False

    @classmethod
    def of(cls, cut: ConsistentCut, name: str, role: str, *, audited: bool = False) -> PlannedTopic:
        return cls(name, role, cut.batches, cut.start, cut.end, cut.boundaries, audited)

    @property
    def offsets(self) -> int:
        return sum(max(0, end - self.start.get(p, 0)) for p, end in self.end.items())


@dataclass(frozen=True)
class Plan:
    """The findings so far, and the topics that are to be read."""

    verdict: Verdict
    topics: tuple[PlannedTopic, ...] = ()
    count_aborted: bool = False
    #: Where the next incremental verification begins if this one is clean.
    until: Mapping[str, Any] | None = None

    @property
    def offsets(self) -> int:
        """How many offsets are to be read; this number decides between this process and a Spark job."""
        return sum(topic.offsets for topic in self.topics)

    def job(self, kafka: Mapping[str, Any], result: str) -> dict[str, Any]:
        """The document for `ckpt_stream/verify/sink_job.py`, without secrets; ``result`` is the file for its result."""
        return {
            "name": f"verify {self.verdict.stream}",
            "kafka": {name: value for name, value in kafka.items() if not is_secret(name)},
            "result": result,
            "targets": [
                {
                    **_range(t),
                    "count_aborted": self.count_aborted and t.role == SINK_TOPIC,
                    "lanes": [astuple(lane) for lane in expected_lanes(t.batches).all] if t.audited else None,
                }
                for t in self.topics
            ],
        }

    def to_json(self) -> str:
        targets = [
            {**_range(t), "role": t.role, "audited": t.audited, "batches": [_batch_as_list(b) for b in t.batches]}
            for t in self.topics
        ]
        return json.dumps(
            {
                "format": PLAN_FORMAT,
                "verdict": asdict(self.verdict),
                "targets": targets,
                "count_aborted": self.count_aborted,
                "until": self.until,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Plan:
        document = json.loads(text)
        if document.get("format") != PLAN_FORMAT:
            raise OtherVersion(
                f"The plan has format {document.get('format')!r}; this version reads format {PLAN_FORMAT}."
            )
        found = document["verdict"]
        findings, notes = ([Finding(**f) for f in found[name]] for name in ("findings", "notes"))
        batches = [BatchSums(**b) for b in found["batches"]]
        verdict = Verdict(**{**found, "findings": findings, "notes": notes, "batches": batches})
        topics = tuple(_planned_topic(t) for t in document["targets"])
        return cls(verdict, topics, document["count_aborted"], document["until"])


def _range(topic: PlannedTopic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "start": {str(p): offset for p, offset in topic.start.items()},
        "end": {str(p): offset for p, offset in topic.end.items()},
        "formats": list(topic.boundaries.formats),
        "offsets": {str(p): list(offsets) for p, offsets in topic.boundaries.offsets.items()},
    }


def _planned_topic(document: Mapping[str, Any]) -> PlannedTopic:
    return PlannedTopic(
        document["topic"],
        document["role"],
        [_batch(sums) for sums in document["batches"]],
        {int(p): offset for p, offset in document["start"].items()},
        {int(p): offset for p, offset in document["end"].items()},
        Boundaries({int(p): offsets for p, offsets in document["offsets"].items()}, document["formats"]),
        document["audited"],
    )


def _batch_as_list(batch: Batch) -> list[Any]:
    """The parts of a batch that the verdict needs: its name and time and, per lane, the sums."""
    lanes = {str(lane): [r.records, r.checksum, r.placed, r.format] for lane, r in batch.lanes.items()}
    return [batch.query, batch.number, batch.shared, batch.any_lane.time, batch.any_lane.lanes, lanes]


def _batch(kept: Sequence[Any]) -> Batch:
    query, number, shared, time, lanes, sums = kept
    records = {int(lane): _record(query, number, int(lane), lanes, time, *sums[lane]) for lane in sums}
    return Batch(query, number, records, shared)


def _record(
    query: str,
    batch: int,
    lane: int,
    lanes: int,
    time: str,
    records: int,
    checksum: int,
    placed: int | None,
    version: int,
) -> LedgerRecord:
    return LedgerRecord(
        sink_id="", query_id=query, run_id="", lane=lane, lanes=lanes, batch=batch, digest="", start={}, end={},
        records=records, checksum=checksum, topic="", topic_id="", application="", time=time, placed=placed,
        format=version,
    )  # fmt: skip
