"""The plan of a verification: everything but the reading of the sink, which may be done here or by a Spark job.

A plan can be written down as JSON: whoever submits the job keeps it, and draws the conclusion when the job is done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.verify.audit import claims_of
from airflow_ckpt.verify.batches import Batch
from airflow_ckpt.verify.cut import Cut
from airflow_ckpt.verify.verdict import BatchSums, Finding, Verdict
from ckpt_stream.ledger import LedgerRecord
from ckpt_stream.security import is_secret
from ckpt_stream.sink_facts import Boundaries

FORMAT = 2
SINK, DEAD_LETTERS = "sink", "dead_letters"


@dataclass(frozen=True)
class Target:
    """One topic to be read: the sink, or a dead-letter topic."""

    topic: str
    role: str
    #: What the ledger claims of this topic.
    batches: Sequence[Batch]
    start: Mapping[int, int]
    end: Mapping[int, int]
    boundaries: Boundaries
    #: Every record must have the audit header.
    audited: bool = False

    @classmethod
    def of(cls, cut: Cut, topic: str, role: str, *, audited: bool = False) -> Target:
        return cls(topic, role, cut.batches, cut.start, cut.end, cut.boundaries, audited)

    @property
    def offsets(self) -> int:
        return sum(max(0, end - self.start.get(p, 0)) for p, end in self.end.items())


@dataclass(frozen=True)
class Plan:
    """What was found so far, and what is left to be read."""

    verdict: Verdict
    targets: tuple[Target, ...] = ()
    count_aborted: bool = False
    #: Where the next incremental verification begins if this one is clean.
    until: Mapping[str, Any] | None = None

    @property
    def offsets(self) -> int:
        """How many offsets are to be read: the measure by which to choose between this process and a Spark job."""
        return sum(target.offsets for target in self.targets)

    def job(self, kafka: Mapping[str, Any], result: str) -> dict[str, Any]:
        """The document for `verify_sink.py`; ``result`` is where it writes what it found. Secrets are left out."""
        return {
            "name": f"verify {self.verdict.stream}",
            "kafka": {name: value for name, value in kafka.items() if not is_secret(name)},
            "result": result,
            "targets": [
                {
                    **_range(t),
                    "count_aborted": self.count_aborted and t.role == SINK,
                    "lanes": [astuple(claim) for claim in claims_of(t.batches).all] if t.audited else None,
                }
                for t in self.targets
            ],
        }

    def to_json(self) -> str:
        targets = [
            {**_range(t), "role": t.role, "audited": t.audited, "batches": [_claims(b) for b in t.batches]}
            for t in self.targets
        ]
        return json.dumps(
            {
                "format": FORMAT,
                "verdict": asdict(self.verdict),
                "targets": targets,
                "count_aborted": self.count_aborted,
                "until": self.until,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Plan:
        document = json.loads(text)
        if document.get("format") != FORMAT:
            raise CkptError(f"The plan has format {document.get('format')!r}; this version reads format {FORMAT}.")
        found = document["verdict"]
        findings, notes = ([Finding(**f) for f in found[name]] for name in ("findings", "notes"))
        batches = [BatchSums(**b) for b in found["batches"]]
        verdict = Verdict(**{**found, "findings": findings, "notes": notes, "batches": batches})
        targets = tuple(_target(t) for t in document["targets"])
        return cls(verdict, targets, document["count_aborted"], document["until"])


def _range(target: Target) -> dict[str, Any]:
    return {
        "topic": target.topic,
        "start": {str(p): offset for p, offset in target.start.items()},
        "end": {str(p): offset for p, offset in target.end.items()},
        "formats": list(target.boundaries.formats),
        "offsets": {str(p): list(offsets) for p, offsets in target.boundaries.offsets.items()},
    }


def _target(document: Mapping[str, Any]) -> Target:
    return Target(
        document["topic"],
        document["role"],
        [_batch(claims) for claims in document["batches"]],
        {int(p): offset for p, offset in document["start"].items()},
        {int(p): offset for p, offset in document["end"].items()},
        Boundaries({int(p): offsets for p, offsets in document["offsets"].items()}, document["formats"]),
        document["audited"],
    )


def _claims(batch: Batch) -> list[Any]:
    """What of a batch the conclusion needs: its name and time and, per lane, the sums."""
    lanes = {str(lane): [r.records, r.checksum, r.placed, r.format] for lane, r in batch.lanes.items()}
    return [batch.query, batch.number, batch.shared, batch.any.time, batch.any.lanes, lanes]


def _batch(claims: Sequence[Any]) -> Batch:
    query, number, shared, time, lanes, sums = claims
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
