"""A sink and its ledger as the protocol writes them, by a plain transactional producer; and its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from airflow_ckpt.verify.subject import Subject
from airflow_ckpt.verify.verdict import Verdict
from airflow_ckpt.verify.verification import verify
from ckpt_stream.kafka.admin_client import admin_client
from ckpt_stream.kafka.ask_topic_ends import topic_ends
from ckpt_stream.protocol.ledger.checksum import AUDIT_HEADER, Headers, add, checksum_of, weighted_checksum
from ckpt_stream.protocol.ledger.ledger_record import FORMAT, LedgerRecord, ledger_topic
from tests.support.kafka_io import create_topic

Rows = list[tuple[str | None, str | None]]


class Written:
    """A sink as the protocol writes it, by transactions of this test: quicker than Spark, and every step can go wrong."""

    def __init__(
        self, kafka: dict[str, str], *, lanes: int = 1, partitions: int = 2, audit: bool = True, **topic: Any
    ) -> None:
        self.kafka, self.lanes, self.audit = kafka, lanes, audit
        self.sink = create_topic(kafka, "sink", partitions, **topic)
        self.partitions = partitions
        self.ledger = ledger_topic(self.sink)
        admin = AdminClient(dict(kafka))
        admin.create_topics([NewTopic(self.ledger, lanes, 1, config={"cleanup.policy": "compact"})])[
            self.ledger
        ].result(30)
        self.next_batch = 0
        self.source_end = 0
        self.query, self.adopted = "q", None
        self.format = FORMAT

    @property
    def subject(self) -> Subject:
        return Subject("s", self.kafka, self.sink, self.sink)

    def ends(self) -> dict[str, dict[str, int]]:

        ends = topic_ends(admin_client(self.kafka), self.sink)
        assert ends is not None
        return {self.sink: {str(p): o for p, o in ends.high.items()}}

    def batch(
        self,
        rows: Rows,
        *,
        claim: Rows | None = None,
        number: int | None = None,
        source: tuple[int, int] | None = None,
        with_ledger: bool = True,
        commit: bool = True,
        skip_lanes: tuple[int, ...] = (),
        places: list[int] | None = None,
        headers: Sequence[Headers] = ((),),
        chosen: Sequence[int] | None = None,
        claim_headers: Sequence[Headers] | None = None,
        claim_chosen: Sequence[int] | None = None,
        forget: Sequence[bytes] = (),
    ) -> Producer:
        """Write one batch. ``claim``: what the ledger says was written, if not the rows. ``headers`` and ``chosen`` (the
        partitions) are taken in turn by the records of a lane. ``forget``: ledger keys that get a tombstone first."""
        batch = self.next_batch if number is None else number
        start = self.ends()
        begin, end = source or (self.source_end, self.source_end + len(rows))
        producer = Producer({**self.kafka, "transactional.id": f"{self.sink}-w", "partitioner": "murmur2_random"})
        producer.init_transactions()
        producer.begin_transaction()
        for lane in range(self.lanes):
            mine = [row for i, row in enumerate(rows) if i % self.lanes == lane]
            if lane not in skip_lanes:
                for i, (key, value) in enumerate(mine):
                    place = places[i] if places else i
                    more = [(AUDIT_HEADER, f"{batch}/{lane}/{place}".encode())] if self.audit else []
                    pairs = [*headers[i % len(headers)], *more]
                    where = {"partition": chosen[i % len(chosen)]} if chosen else {}
                    producer.produce(self.sink, value, key, headers=pairs or None, **where)
            for gone in forget:
                if gone.startswith(b"%d/" % lane):
                    producer.produce(self.ledger, None, gone, partition=lane)
            if with_ledger:
                claimed = mine if claim is None else [row for i, row in enumerate(claim) if i % self.lanes == lane]
                record = self._record(batch, lane, claimed, (begin, end), start)
                record = self._with_sums(record, claimed, claim_headers or headers, claim_chosen or chosen)
                producer.produce(self.ledger, record.to_json(), record.key, partition=lane)
        producer.flush()
        if commit:
            producer.commit_transaction()
            if number is None:
                self.next_batch += 1
                self.source_end = end
        return producer

    def _record(
        self, batch: int, lane: int, rows: Rows, source: tuple[int, int], start: dict[str, dict[str, int]]
    ) -> LedgerRecord:
        return LedgerRecord(
            sink_id=self.sink, query_id=self.query, run_id="r", lane=lane, lanes=self.lanes, batch=batch, digest=f"d{batch}",
            start={"in": {"0": source[0]}}, end={"in": {"0": source[1]}}, records=len(rows), checksum=0,
            topic=self.sink, topic_id="t", application="", time="2026-01-01T00:00:00.000+00:00",
            sink_start=start, audited=self.audit, format=self.format,
            adopted=self.adopted if batch == 0 and self.format > 1 else None,
        )  # fmt: skip

    def _with_sums(
        self, record: LedgerRecord, rows: Rows, headers: Sequence[Headers], chosen: Sequence[int] | None
    ) -> LedgerRecord:
        total = weighted = 0
        for i, (key, value) in enumerate(rows):
            hashed = checksum_of([_bytes(key)], [_bytes(value)], [headers[i % len(headers)]], self.format)
            total = add(total, hashed)
            weighted = add(weighted, weighted_checksum(hashed, chosen[i % len(chosen)])) if chosen else 0
        return replace(record, checksum=total, placed=weighted if chosen and self.format > 1 else None)

    def take_over(self, query: str) -> None:
        """The checkpoint is lost, and another query goes on where the ledger ends."""
        self.adopted = {"query_id": self.query, "batch": self.next_batch - 1}
        self.query, self.next_batch = query, 0

    def plain(self, key: str, value: str) -> None:
        """A record of a producer without transactions."""
        producer = Producer(dict(self.kafka))
        producer.produce(self.sink, value, key)
        producer.flush()

    def verdict(self, **options: Any) -> Verdict:
        return verify(self.subject, **options)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def rows(count: int, first: int = 0) -> Rows:
    return [(f"k{i % 7}", f"v{i}") for i in range(first, first + count)]


def kinds(verdict: Verdict) -> set[str]:
    return {f.kind for f in verdict.findings}


KIND: list[Headers] = [(), (("kind", b"odd"),), (("kind", None),)]
