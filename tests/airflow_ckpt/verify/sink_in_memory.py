"""A sink with its ledger and its checkpoint, as the protocol writes them, on a Kafka in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.verify.subject import Subject
from airflow_ckpt.verify.verdict import Verdict
from airflow_ckpt.verify.verification import verify
from ckpt_stream.protocol.checkpoint.checkpoint_log import input_digest
from ckpt_stream.protocol.ledger.checksum import AUDIT_HEADER, checksum_of
from ckpt_stream.protocol.ledger.ledger_record import FORMAT, LedgerRecord, ledger_topic
from tests.ckpt_stream.moving import QUERY, MovingCheckpoint, offsets
from tests.ckpt_stream.samples import held
from tests.support.fake_kafka import FakeBroker, FakePartition
from tests.support.fake_kafka.broker import Entry

SINK, DEAD = "orders_out", "orders_dead"
LEDGER = ledger_topic("orders")
ROWS = ("a", "b", "c")


class SinkInMemory:
    """A stream of one lane, whose batches are of one partition of the sink. What a test changes of it is a fault."""

    def __init__(self, broker: FakeBroker, folder: Path, *, audit: bool = False, dead_letters: bool = False) -> None:
        self.broker, self.files, self.audit, self.dead_letters = broker, FsspecFiles(str(folder)), audit, dead_letters
        self.records: list[LedgerRecord] = []
        broker.topic(SINK)
        broker.topic(LEDGER, cleanup_policy="compact")
        if dead_letters:
            broker.topic(DEAD)

    @property
    def sink(self) -> FakePartition:
        return self.broker.partition(SINK)

    @property
    def dead(self) -> FakePartition:
        return self.broker.partition(DEAD)

    def batch(
        self, *rows: str, dead: Sequence[str] = ("x",), number: int | None = None, **changes: Any
    ) -> LedgerRecord:
        """Write one batch with these rows, and with these dead letters if there is a topic for them."""
        rows, batch = rows or ROWS, len(self.records) if number is None else number
        version = changes.get("format", FORMAT)
        record = replace(
            held(batch, query_id=QUERY, digest=input_digest(offsets(batch)), topic=SINK, audited=self.audit),
            records=len(rows),
            checksum=checksum_of([b"k"] * len(rows), [row.encode() for row in rows], None, version),
            sink_start={SINK: {"0": self.sink.high}},
            **changes,
        )
        for place, row in enumerate(rows):
            self.write(self.sink, row, f"{batch}/0/{place}" if self.audit else None)
        if self.dead_letters:
            starts = {str(n): p.high for n, p in enumerate(self.broker.topics[DEAD].partitions)}
            record = replace(
                record,
                sink_start={**record.sink_start, DEAD: starts},
                dead_letter_topic=DEAD,
                dead_letters=len(dead),
                dead_letter_checksum=checksum_of([b"k"] * len(dead), [row.encode() for row in dead], None, version),
            )
            for row in dead:
                self.write(self.dead, row)
        self.broker.partition(LEDGER).write(record.key, record.to_json())
        self.records.append(record)
        self.keep_checkpoint(len(self.records))
        return record

    def write(self, partition: FakePartition, row: str, name: str | None = None, *, aborted: bool = False) -> None:
        headers = ((AUDIT_HEADER, name.encode()),) if name else ()
        partition.log.append(Entry(b"k", row.encode(), headers=headers, aborted=aborted))

    def keep_checkpoint(self, batches: int) -> None:
        """The files of a checkpoint that has committed so many batches."""
        for name, text in MovingCheckpoint([], begun=batches).texts.items():
            self.files.write(name, text)

    @property
    def subject(self) -> Subject:
        return Subject("orders", {"bootstrap.servers": "broker:1"}, "orders", SINK, None, self.files)

    def verdict(self, **options: Any) -> Verdict:
        return verify(self.subject, **options)


def kinds(verdict: Verdict) -> list[tuple[str, bool]]:
    """The kind of each finding, and whether it is a violation."""
    return [(f.kind, f.violation) for f in verdict.findings]
