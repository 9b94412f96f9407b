"""Seeded faults on a real broker, each made for real, and clean streams that must not be accused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from airflow_ckpt.checkpoint.files import FsspecFiles
from airflow_ckpt.verify import verification
from airflow_ckpt.verify.verdict import CLEAN, UNKNOWN, VIOLATED, Verdict
from airflow_ckpt.verify.verification import Range, Subject, verify
from ckpt_stream import topics
from ckpt_stream.checksum import AUDIT_HEADER, Headers, add, checksum_of, placed
from ckpt_stream.ledger import FORMAT, LedgerRecord, ledger_topic
from tests.kafka_io import create_topic

pytestmark = pytest.mark.integration

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
        from airflow_ckpt.kafka.offsets import admin_client, ends_of

        ends = ends_of(admin_client(self.kafka), self.sink)
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
        total = weighed = 0
        for i, (key, value) in enumerate(rows):
            hashed = checksum_of([_bytes(key)], [_bytes(value)], [headers[i % len(headers)]], self.format)
            total = add(total, hashed)
            weighed = add(weighed, placed(hashed, chosen[i % len(chosen)])) if chosen else 0
        return replace(record, checksum=total, placed=weighed if chosen and self.format > 1 else None)

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


@pytest.fixture
def written(kafka: Any) -> Callable[..., Written]:
    def make(**options: Any) -> Written:
        return Written(kafka.client_config(), **options)

    return make


@pytest.fixture(params=[True, False], ids=["audited", "sums only"])
def two_batches(request: pytest.FixtureRequest, kafka: Any) -> Written:
    """A sink with two clean batches, to which a fault is then added."""
    sink = Written(kafka.client_config(), audit=request.param)
    sink.batch(rows(50))
    sink.batch(rows(50, 50))
    return sink


def kinds(verdict: Verdict) -> set[str]:
    return {f.kind for f in verdict.findings}


def checkpoint_in(folder: Path, newest: int) -> FsspecFiles:
    """A checkpoint that has committed these batches, as `Written` writes them."""
    texts = {"metadata": '{"id":"q"}'}
    for n in range(newest + 1):
        texts[f"offsets/{n}"] = f'v1\n{{"batchTimestampMs":{n}}}\n{{"in":{{"0":{n}}}}}'
        texts[f"commits/{n}"] = 'v1\n{"nextBatchWatermarkMs":0}'
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return FsspecFiles(str(folder))


# Clean streams


@pytest.mark.parametrize("audit", [True, False])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_clean_stream_is_clean(written: Callable[..., Written], audit: bool, lanes: int) -> None:
    sink = written(audit=audit, lanes=lanes)
    sink.batch(rows(40))
    sink.batch([])  # an empty batch
    sink.batch(rows(40, 40), commit=False).abort_transaction()
    sink.batch([(None, "x"), ("k", None), (None, None), ("", "")])
    verdict = sink.verdict(count_aborted=True)
    assert verdict.verdict == CLEAN, verdict.findings
    assert (verdict.sink_committed, verdict.ledger_records) == (44, 44)
    assert (verdict.lost, verdict.duplicated, verdict.alien, verdict.torn) == (0, 0, 0, 0)
    assert verdict.aborted_hidden == 40
    assert (verdict.first_batch, verdict.last_batch) == (0, 2)
    assert verdict.verified_until == {"batch": 2, "query_id": "q"}


def test_an_incremental_verification_reads_only_what_is_new(written: Callable[..., Written]) -> None:
    sink = written()
    sink.batch(rows(50))
    sink.batch(rows(20, 50))
    verdict = sink.verdict(batches=Range(after=0))
    assert verdict.verdict == CLEAN, verdict.findings
    assert verdict.sink_committed == 20
    assert sink.verdict(batches=Range(after=1)).sink_committed == 0
    assert sink.verdict(batches=Range(until=0)).sink_committed == 50


def test_a_batch_in_flight_is_left_out_and_not_accused(written: Callable[..., Written]) -> None:
    sink = written(partitions=1)
    sink.batch(rows(30))
    sink.batch(rows(10, 30))
    open_one = sink.batch(rows(10, 40), commit=False)
    verdict = sink.verdict()
    assert verdict.verdict == CLEAN, verdict.findings
    assert verdict.last_batch == 0, "the newest batch has no bound while another one is open"
    open_one.commit_transaction()


# Seeded faults


def test_a_record_removed_is_found(kafka: Any, two_batches: Written) -> None:
    """The batch claims a record that is not there."""
    two_batches.batch(rows(9, 100), claim=rows(10, 100))
    verdict = two_batches.verdict()
    assert verdict.verdict == VIOLATED
    assert kinds(verdict) == {"lost"}
    assert verdict.lost == 1
    assert [f.batch for f in verdict.findings] == [2]


def test_a_record_written_twice_by_a_plain_producer_is_found(two_batches: Written) -> None:
    two_batches.plain("k1", "v1")
    verdict = two_batches.verdict()
    assert verdict.verdict == VIOLATED
    assert kinds(verdict) == ({"alien"} if two_batches.audit else {"surplus"})
    assert verdict.alien == (1 if two_batches.audit else None)


def test_a_batch_replayed_without_the_ledger_check_is_found(two_batches: Written) -> None:
    two_batches.batch(rows(50, 50), number=1)
    verdict = two_batches.verdict()
    assert verdict.verdict == VIOLATED
    assert "ledger_repeat" in kinds(verdict)
    if two_batches.audit:
        assert verdict.duplicated == 50


def test_a_batch_replayed_without_its_ledger_record_is_found(two_batches: Written) -> None:
    two_batches.batch(rows(50, 50), number=1, with_ledger=False)
    verdict = two_batches.verdict()
    assert verdict.verdict == VIOLATED
    assert kinds(verdict) == ({"duplicate"} if two_batches.audit else {"surplus"})
    if two_batches.audit:
        assert verdict.duplicated == 50


def test_a_batch_half_committed_is_found(written: Callable[..., Written]) -> None:
    sink = written(lanes=2)
    sink.batch(rows(40))
    sink.batch(rows(40, 40), skip_lanes=(1,))
    sink.batch(rows(10, 80))
    verdict = sink.verdict()
    assert verdict.verdict == VIOLATED
    assert kinds(verdict) == {"torn_batch"}
    assert (verdict.torn, verdict.lost) == (1, 20)


def test_two_records_of_one_key_swapped_are_found_where_records_have_names(
    kafka: Any, written: Callable[..., Written]
) -> None:
    sink = written(partitions=1)
    sink.batch([("k", "a"), ("k", "b"), ("k", "c")], places=[0, 2, 1])
    verdict = sink.verdict()
    assert verdict.verdict == VIOLATED
    assert kinds(verdict) == {"out_of_order"}
    assert verdict.out_of_order == 1


def test_a_record_altered_is_found(two_batches: Written) -> None:
    two_batches.batch([*rows(9, 100), ("k", "altered")], claim=rows(10, 100))
    verdict = two_batches.verdict()
    assert verdict.verdict == VIOLATED
    assert kinds(verdict) == {"altered"}
    assert [f.batch for f in verdict.findings] == [2]


def test_a_ledger_record_missing_is_found(two_batches: Written) -> None:
    two_batches.next_batch = 3
    two_batches.batch(rows(5, 100))
    verdict = two_batches.verdict(depth="ledger")
    assert verdict.verdict == VIOLATED
    assert kinds(verdict) == {"ledger_gap"}


def test_source_ranges_that_overlap_or_leave_a_hole_are_found(written: Callable[..., Written]) -> None:
    sink = written()
    sink.batch(rows(10))
    sink.batch(rows(10, 10), source=(8, 18))
    sink.batch(rows(10, 20), source=(20, 30))
    verdict = sink.verdict(depth="ledger")
    assert verdict.verdict == VIOLATED
    assert [(f.kind, f.batch, f.records) for f in verdict.findings] == [("source_overlap", 1, 2), ("source_gap", 2, 2)]


def test_a_foreign_writer_with_transactions_is_found(two_batches: Written) -> None:
    foreign = Producer({**two_batches.kafka, "transactional.id": "foreign"})
    foreign.init_transactions()
    foreign.begin_transaction()
    foreign.produce(two_batches.sink, "other", "k")
    foreign.commit_transaction()
    verdict = two_batches.verdict()
    assert verdict.verdict == VIOLATED
    assert kinds(verdict) == ({"alien"} if two_batches.audit else {"surplus"})


def test_a_transaction_open_for_longer_than_its_timeout_is_found(written: Callable[..., Written]) -> None:
    sink = written(partitions=1)
    sink.batch(rows(10))
    foreign = Producer({**sink.kafka, "transactional.id": f"{sink.sink}-stuck", "transaction.timeout.ms": 60000})
    foreign.init_transactions()
    foreign.begin_transaction()
    foreign.produce(sink.sink, "never ended", "k")
    foreign.flush()
    time.sleep(1.2)
    verdict = verify(replace(sink.subject, transaction_timeout=1.0))
    assert "open_transaction" in kinds(verdict)
    finding = next(f for f in verdict.findings if f.kind == "open_transaction")
    assert (finding.partition, finding.topic) == (0, sink.sink)
    assert "kafka-transactions.sh" in finding.helps
    foreign.abort_transaction()


def test_a_sink_truncated_by_retention_is_not_called_clean(two_batches: Written) -> None:
    admin = AdminClient(dict(two_batches.kafka))
    ends = two_batches.ends()[two_batches.sink]
    for future in admin.delete_records(
        [TopicPartition(two_batches.sink, int(p), o // 2) for p, o in ends.items()]
    ).values():
        future.result(30)
    verdict = two_batches.verdict()
    assert verdict.verdict == UNKNOWN
    assert kinds(verdict) == {"sink_truncated"}
    assert verdict.lost is None


def test_what_retention_has_left_is_verified(written: Callable[..., Written]) -> None:
    sink = written()
    for _ in range(3):
        sink.batch(rows(30))
    begin = sink.ends()[sink.sink]
    sink.batch(rows(30))
    begin_of_last = sink.ends()[sink.sink]
    sink.batch(rows(30))
    admin = AdminClient(dict(sink.kafka))
    # All of batches 0 to 2, and a part of batch 3.
    for future in admin.delete_records(
        [TopicPartition(sink.sink, int(p), o + 1 if begin_of_last[p] > o + 1 else o) for p, o in begin.items()]
    ).values():
        future.result(30)
    verdict = sink.verdict()
    (finding,) = verdict.findings
    assert (finding.kind, verdict.verdict) == ("sink_truncated", UNKNOWN)
    assert "batches 0 to 3" in finding.what
    assert "from batch 4 on" in finding.helps
    assert (verdict.sink_committed, verdict.lost, verdict.reached) == (30, None, {"batch": 4, "query_id": "q"})

    sink.plain("k1", "of somebody else")
    assert sink.verdict().verdict == VIOLATED


@pytest.mark.parametrize("after", [0, 7])
def test_a_range_that_the_ledger_does_not_hold_is_not_called_clean(written: Callable[..., Written], after: int) -> None:
    sink = written()
    assert kinds(sink.verdict(batches=Range(after=after))) == {"no_batches"}
    sink.batch(rows(10))
    verdict = sink.verdict(batches=Range(after=after))
    assert kinds(verdict) == (set() if after == 0 else {"not_there_yet"})
    assert verdict.since == after + 1


def test_a_compacted_sink_is_not_called_clean(written: Callable[..., Written]) -> None:
    sink = written(cleanup_policy="compact")
    sink.batch(rows(10))
    verdict = sink.verdict()
    assert verdict.verdict == UNKNOWN
    assert kinds(verdict) == {"sink_compacted"}


def test_a_commit_whose_marker_is_late_accuses_nobody_until_it_is_there(
    written: Callable[..., Written], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "SETTLE_SECONDS", 0.3)
    monkeypatch.setattr(verification._Look, "read_group", lambda look: {"in": {"0": 60}})
    sink = written()
    for first in (0, 20):
        sink.batch(rows(20, first))
    # Checkpoint and group know of batch 2, whose transaction readers do not see the end of.
    late = sink.batch(rows(20, 40), number=2, source=(40, 60), commit=False)
    subject = replace(sink.subject, files=checkpoint_in(tmp_path, 2))
    verdict = verify(subject, depth="ledger")
    found = {f.kind: f.violation for f in verdict.findings}
    assert (found["ledger_behind"], found["group_ahead"]) == (False, False), verdict.findings
    assert verdict.verdict == UNKNOWN
    late.commit_transaction()
    assert {"ledger_behind", "group_ahead"}.isdisjoint(kinds(verify(subject, depth="ledger")))
    # The same lack, with nothing open that could hide the record.
    behind = replace(subject, files=checkpoint_in(tmp_path, 3))
    assert {f.kind for f in verify(behind, depth="ledger").findings if f.violation} >= {"ledger_behind"}


def test_a_ledger_shorter_than_the_range_is_not_called_clean(written: Callable[..., Written]) -> None:
    sink = written()
    sink.next_batch = 5
    sink.batch(rows(10))
    verdict = sink.verdict()
    assert verdict.verdict == UNKNOWN
    assert kinds(verdict) == {"ledger_history"}
    assert verdict.verified_until is None


def test_a_stream_that_never_ran_is_not_called_clean(kafka: Any, topics: Callable[..., str]) -> None:
    sink = topics("sink")
    verdict = verify(Subject("s", kafka.client_config(), sink, sink))
    assert verdict.verdict == UNKNOWN
    assert kinds(verdict) == {"no_topic"}


# Ledger format 2


KIND: list[Headers] = [(), (("kind", b"odd"),), (("kind", None),)]


def test_a_stream_that_changed_over_to_format_2_is_clean(written: Callable[..., Written]) -> None:
    sink = written(lanes=2)
    sink.format = 1
    sink.batch([(None, "x"), ("y", None)], headers=KIND)
    sink.format = 2
    sink.batch([*rows(20), (None, "x"), ("y", None)], headers=KIND)
    sink.batch(rows(20), headers=KIND, chosen=[1, 0, 1])
    verdict = sink.verdict()
    assert verdict.verdict == CLEAN, verdict.findings
    assert verdict.sink_committed == 44


@pytest.mark.parametrize(("version", "found"), [(1, []), (2, [(0, "altered"), (1, "altered"), (2, "altered")])])
def test_since_format_2_a_header_a_null_and_a_chosen_partition_are_a_part_of_a_record(
    written: Callable[..., Written], version: int, found: list[tuple[int, str]]
) -> None:
    sink = written(audit=False)
    sink.format = version
    sink.batch([("k", "v")], headers=[(("kind", b"odd"),)], claim_headers=[(("kind", b"even"),)])
    sink.batch([("k", None)], claim=[(None, "k")])
    sink.batch([("k", "v")], chosen=[0], claim_chosen=[1] if version > 1 else None)
    assert [(f.batch, f.kind) for f in sink.verdict().findings] == found


# The real stream


def test_a_real_stream_is_clean_while_it_runs_and_afterwards(spark: Any, stream: Callable[..., Any]) -> None:
    under_test = stream(partitions=3, lanes=2, max_offsets_per_batch=40, audit="record")
    under_test.feed(*map(str, range(400)), keys=31)

    def subject() -> Subject:
        files = FsspecFiles(str(under_test.checkpoint))
        return Subject(under_test.name, under_test.kafka, under_test.name, under_test.sink, under_test.name, files)

    verdicts: list[Verdict] = []

    def verify_while_it_runs(events: Any) -> Any:
        return events.select("key", "value")

    for verdict in _while(lambda: under_test.drive(spark, verify_while_it_runs), subject):
        verdicts.append(verdict)
    verdicts.append(verify(subject()))
    assert [v.verdict for v in verdicts if v.last_batch is not None] == [CLEAN] * len(
        [v for v in verdicts if v.last_batch is not None]
    ), [v.findings for v in verdicts]
    assert len(verdicts) > 1, "the stream was not verified while it ran"
    assert verdicts[-1].sink_committed == 400
    assert verdicts[-1].source_records == 400


def _while(work: Callable[[], Any], subject: Callable[[], Subject]) -> Iterator[Verdict]:
    import threading

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        verdict = verify(subject())
        if verdict.first_batch is not None:
            yield verdict
    thread.join()
