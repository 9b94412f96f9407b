"""Random histories of batches, crashes and seeded faults against a small model: no clean one is accused, no fault passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ckpt.kafka.offsets import Ends
from airflow_ckpt.verify.audit import Audit
from airflow_ckpt.verify.cut import take_cut
from airflow_ckpt.verify.ledger_check import batches_of, check_batches, check_lanes
from airflow_ckpt.verify.sink_check import compare
from airflow_ckpt.verify.sink_scan import Boundaries, Scan, _Tally
from airflow_ckpt.verify.verdict import Finding
from ckpt_stream.checksum import AUDIT_HEADER, add, checksum_of
from ckpt_stream.ledger import LedgerRecord

pytestmark = pytest.mark.unit

TOPIC = "sink"
PARTITIONS = 2


def hash_of(key: bytes | None, value: bytes | None) -> int:
    return checksum_of([key], [value])


@dataclass(frozen=True)
class Message:
    """As much of a consumer's message as the verification looks at."""

    place: int
    at: int
    record: tuple[bytes | None, bytes | None]
    name: bytes | None

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return self.place

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.record[0]

    def value(self) -> bytes | None:
        return self.record[1]

    def headers(self) -> list[tuple[str, bytes]] | None:
        return None if self.name is None else [(AUDIT_HEADER, self.name)]


@dataclass
class Model:
    """A sink and its ledger, written batch by batch; offsets have holes where markers and aborted records lie."""

    audited: bool
    ends: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    messages: list[Message] = field(default_factory=list)
    lanes: list[list[LedgerRecord]] = field(default_factory=list)
    number: int = 0
    source: int = 0

    def hole(self, size: int = 1) -> None:
        self.ends = [end + size for end in self.ends]

    def put(self, key: bytes | None, value: bytes | None, name: bytes | None) -> None:
        partition = (hash_of(key, value) if key is None else hash_of(key, None)) % PARTITIONS
        self.messages.append(Message(partition, self.ends[partition], (key, value), name))
        self.ends[partition] += 1

    def batch(self, sizes: Sequence[int], *, aborted: int = 0) -> None:
        """One batch with a lane for each size; ``aborted`` attempts went before it."""
        start = {TOPIC: {str(p): end for p, end in enumerate(self.ends)}}
        self.hole(aborted * (sum(sizes) + 1))
        read = sum(sizes)
        for lane, size in enumerate(sizes):
            total = 0
            for place in range(size):
                key = b"k%d" % (place % 5) if place % 7 else None
                value = b"%d-%d-%d" % (self.number, lane, place) if place % 11 else None
                self.put(key, value, b"%d/%d/%d" % (self.number, lane, place) if self.audited else None)
                total = add(total, hash_of(key, value))
            self.hole()
            record = LedgerRecord(
                sink_id="s", query_id="q", run_id="r", lane=lane, lanes=len(sizes), batch=self.number,
                digest=f"d{self.number}", start={"in": {"0": self.source}}, end={"in": {"0": self.source + read}},
                records=size, checksum=total, topic=TOPIC, topic_id="t", application="", time=f"{self.number:09d}",
                sink_start=start, audited=self.audited,
            )  # fmt: skip
            while len(self.lanes) <= lane:
                self.lanes.append([])
            self.lanes[lane].append(record)
        self.number += 1
        self.source += read

    def verify(self) -> list[Finding]:
        """What the verification finds, over the model instead of Kafka."""
        high = dict(enumerate(self.ends))
        ends = Ends(dict.fromkeys(high, 0), high, high)
        cut, batches, _ = take_cut(lambda: batches_of(self.lanes), lambda: ends, TOPIC, settle_seconds=0)
        found = list(check_lanes(self.lanes))
        newest = cut.batches[-1].number if cut.batches else -1
        found += check_batches(batches, newest)
        scan, audit = Scan(), Audit(cut.batches, TOPIC) if self.audited else None
        tally = _Tally(cut.boundaries, cut.end, scan)
        tally.add([m for m in self.messages if cut.start[m.place] <= m.at < cut.end[m.place]], audit)
        differences = list(compare(cut.batches, scan, TOPIC))
        if audit is not None:
            audit.finish()
            found += audit.findings
        return found + differences


histories = st.lists(
    st.tuples(st.lists(st.integers(0, 12), min_size=1, max_size=3), st.integers(0, 2)), min_size=1, max_size=8
)


def written(history: Sequence[tuple[Sequence[int], int]], audited: bool) -> Model:
    model = Model(audited)
    for sizes, aborted in history:
        model.batch(sizes, aborted=aborted)
    return model


@settings(max_examples=150, deadline=None)
@given(histories, st.booleans())
def test_an_honest_history_is_never_accused(history: Sequence[tuple[Sequence[int], int]], audited: bool) -> None:
    """Empty lanes and batches, aborted attempts, null keys and values, lane counts that change."""
    assert written(history, audited).verify() == []


@settings(max_examples=300, deadline=None)
@given(histories, st.booleans(), st.data())
def test_every_seeded_fault_is_found(history: Sequence[tuple[Sequence[int], int]], audited: bool, data: Any) -> None:
    model = written([*history, ([3], 0), ([2], 0)], audited)
    fault = data.draw(
        st.sampled_from([remove, repeat, alter, foreign, drop_ledger_record, repeat_ledger_record, move_source])
    )
    fault(model, data)
    assert model.verify(), fault.__name__


def _some(model: Model, data: Any) -> int:
    return int(data.draw(st.integers(0, len(model.messages) - 1)))


def remove(model: Model, data: Any) -> None:
    del model.messages[_some(model, data)]


def repeat(model: Model, data: Any) -> None:
    """The same record once more, at the end of its partition."""
    message = model.messages[_some(model, data)]
    model.messages.append(replace(message, at=model.ends[message.place]))
    model.ends[message.place] += 1


def alter(model: Model, data: Any) -> None:
    number = _some(model, data)
    message = model.messages[number]
    model.messages[number] = replace(message, record=(message.record[0], b"altered"))


def foreign(model: Model, data: Any) -> None:
    model.put(b"k", b"from somebody else", None)


def drop_ledger_record(model: Model, data: Any) -> None:
    """Of a batch that is neither the first nor the newest: those may be cut off or in flight."""
    known = [
        (lane, i) for lane, rs in enumerate(model.lanes) for i, r in enumerate(rs) if 0 < r.batch < model.number - 1
    ]
    if not known:
        remove(model, data)
        return
    lane, index = data.draw(st.sampled_from(known))
    del model.lanes[lane][index]


def repeat_ledger_record(model: Model, data: Any) -> None:
    lane = data.draw(st.sampled_from([i for i, records in enumerate(model.lanes) if records]))
    model.lanes[lane].append(model.lanes[lane][-1])


def move_source(model: Model, data: Any) -> None:
    """The source range of the newest batch does not touch the one before."""
    by = data.draw(st.sampled_from([-1, 1]))
    newest = model.lanes[0][-1]
    moved = {"in": {"0": newest.start["in"]["0"] + by}}
    model.lanes[0][-1] = replace(newest, start=moved)


def test_swapped_records_are_found_only_where_records_have_names() -> None:
    """The sums cannot see the order, and the documentation says so."""
    for audited in (True, False):
        model = written([([10], 0)], audited)
        first, second = [m for m in model.messages if m.place == model.messages[0].place][:2]
        i, j = model.messages.index(first), model.messages.index(second)
        model.messages[i] = replace(second, at=first.at)
        model.messages[j] = replace(first, at=second.at)
        assert {f.kind for f in model.verify()} == ({"out_of_order"} if audited else set())


def test_a_place_before_the_first_batch_belongs_to_none() -> None:
    boundaries = Boundaries([4, 5], {0: [10, 20]})
    assert [boundaries.place(0, offset)[0] for offset in (9, 10, 19, 20, 99)] == [None, 4, 4, 5, 5]
