"""Random histories of batches, crashes and seeded faults: a clean one has no finding, and every fault has one."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ckpt.verify.checks.audit_check import check_records, expected_lanes
from airflow_ckpt.verify.checks.ledger_check import check_batches, check_lanes
from airflow_ckpt.verify.checks.sink_check import compare_sink
from airflow_ckpt.verify.scan.sink_scan import Gathered
from airflow_ckpt.verify.scan_plan import PlannedTopic
from airflow_ckpt.verify.verdict import Finding
from ckpt_stream.protocol.ledger.checksum import AUDIT_HEADER, Headers, add, checksum_of, weighted_checksum
from ckpt_stream.protocol.ledger.ledger_batches import batches_of
from ckpt_stream.protocol.ledger.ledger_record import FORMAT, LedgerRecord
from ckpt_stream.protocol.topic_ends import TopicEnds
from ckpt_stream.protocol.verification.consistent_cut import ConsistentCut, Snapshot, take_consistent_cut
from ckpt_stream.protocol.verification.scan_result import Boundaries, Scan

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
    more: Headers = ()

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

    def headers(self) -> Headers | None:
        return [*self.more, *([] if self.name is None else [(AUDIT_HEADER, self.name)])] or None


@dataclass
class Model:
    """A sink and its ledger, written batch by batch; offsets have holes where markers and aborted records lie."""

    audited: bool
    ends: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    messages: list[Message] = field(default_factory=list)
    lanes: list[list[LedgerRecord]] = field(default_factory=list)
    number: int = 0
    source: int = 0
    query: str = "q1"
    taken_over: dict[str, Any] | None = None
    format: int = FORMAT
    #: The transform chooses each record's partition.
    chosen: bool = False

    def hole(self, size: int = 1) -> None:
        self.ends = [end + size for end in self.ends]

    def put(self, key: bytes | None, value: bytes | None, name: bytes | None, more: Headers = ()) -> int:
        partition = (hash_of(key, value) if key is None else hash_of(key, None)) % PARTITIONS
        self.messages.append(Message(partition, self.ends[partition], (key, value), name, tuple(more)))
        self.ends[partition] += 1
        return partition

    def take_over(self) -> None:
        """The checkpoint is lost, and another query goes on where the ledger ends, counting from 0 again."""
        newest = self.lanes[0][-1]
        self.taken_over = {"query_id": newest.query_id, "batch": newest.batch}
        self.number, self.query = 0, f"q{int(self.query[1:]) + 1}"

    def batch(self, sizes: Sequence[int], *, aborted: int = 0) -> None:
        """One batch with a lane for each size; ``aborted`` attempts went before it."""
        start = {TOPIC: {str(p): end for p, end in enumerate(self.ends)}}
        self.hole(aborted * (sum(sizes) + 1))
        read = sum(sizes)
        for lane, size in enumerate(sizes):
            total = weighted = 0
            for place in range(size):
                key = b"k%d" % (place % 5) if place % 7 else None
                value = b"%d-%d-%d" % (self.number, lane, place) if place % 11 else None
                more = [("kind", b"odd" if place % 3 else None)] if self.format > 1 and place % 2 else []
                name = b"%d/%d/%d" % (self.number, lane, place) if self.audited else None
                partition = self.put(key, value, name, more)
                hashed = checksum_of([key], [value], [more], self.format)
                total, weighted = add(total, hashed), add(weighted, weighted_checksum(hashed, partition))
            self.hole()
            record = LedgerRecord(
                sink_id="s", query_id=self.query, run_id="r", lane=lane, lanes=len(sizes), batch=self.number,
                digest=f"d{self.number}", start={"in": {"0": self.source}}, end={"in": {"0": self.source + read}},
                records=size, checksum=total, topic=TOPIC, topic_id="t", application="", time=f"{self.number:09d}",
                sink_start=start, audited=self.audited, format=self.format, placed=weighted if self.chosen else None,
                adopted=self.taken_over if self.number == 0 and self.format > 1 else None,
            )  # fmt: skip
            while len(self.lanes) <= lane:
                self.lanes.append([])
            self.lanes[lane].append(record)
        self.number += 1
        self.source += read

    def verify(self) -> list[Finding]:
        """What the verification finds, over the model instead of Kafka."""
        cut = self.cut()
        found = [*check_lanes(self.lanes), *check_batches(cut.batches)]
        scan = self.scan(cut)
        differences = list(compare_sink(cut.batches, scan, TOPIC))
        if scan.audit is not None:
            found += check_records(cut.batches, scan.audit, TOPIC).findings
        return found + differences

    def cut(self) -> ConsistentCut:
        """All batches, of a sink that stands still."""
        high = dict(enumerate(self.ends))
        snapshot = Snapshot(batches_of(self.lanes), TopicEnds(dict.fromkeys(high, 0), high, high), at_rest=True)
        return take_consistent_cut(lambda: snapshot, TOPIC, settle_seconds=0)[0]

    def read(self, cut: ConsistentCut | PlannedTopic) -> list[Message]:
        """The topic in the order of its offsets, as a consumer gets it."""
        messages = [m for m in self.messages if cut.start[m.place] <= m.at < cut.end[m.place]]
        return sorted(messages, key=lambda m: (m.place, m.at))

    def scan(self, cut: ConsistentCut | PlannedTopic) -> Scan:
        """What the scan in process gathers."""
        expected = expected_lanes(cut.batches) if self.audited else None
        gathered = Gathered(TOPIC, cut.boundaries, cut.end, expected)
        gathered.add(self.read(cut))
        return gathered.finish()


histories = st.lists(
    st.tuples(st.lists(st.integers(0, 12), min_size=1, max_size=3), st.integers(0, 2)), min_size=1, max_size=8
)


#: Before how many batches another query takes over, and from which one on the ledger is of format 2.
changes = st.tuples(st.sets(st.integers(1, 9), max_size=3), st.integers(0, 9))
Changes = tuple[Set[int], int]
NONE: Changes = (frozenset(), 0)


def written(
    history: Sequence[tuple[Sequence[int], int]], audited: bool, changed: Changes = NONE, chosen: bool = False
) -> Model:
    model = Model(audited, chosen=chosen)
    taken_over, format_2 = changed
    for place, (sizes, aborted) in enumerate(history):
        model.format = 2 if place >= format_2 else 1
        if place in taken_over:
            model.take_over()
        model.batch(sizes, aborted=aborted)
    return model


@settings(max_examples=150, deadline=None)
@given(histories, st.booleans(), changes, st.booleans())
def test_a_history_without_a_fault_has_no_finding(
    history: Sequence[tuple[Sequence[int], int]], audited: bool, changed: Changes, chosen: bool
) -> None:
    """Empty lanes and batches, aborted attempts, null keys and values, headers, lane counts that change, another ledger
    format, and queries that take over."""
    assert written(history, audited, changed, chosen).verify() == []


@settings(max_examples=300, deadline=None)
@given(histories, st.booleans(), changes, st.data())
def test_every_seeded_fault_is_found(
    history: Sequence[tuple[Sequence[int], int]], audited: bool, changed: Changes, data: Any
) -> None:
    model = written([*history, ([3], 0), ([2], 0)], audited, changed)
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
    model.put(b"k", b"from another producer", None)


def drop_ledger_record(model: Model, data: Any) -> None:
    """Of the newest query, which none has replaced, and a batch that is neither the first nor the newest: those may be cut
    off or in flight."""
    known = [
        (lane, i)
        for lane, rs in enumerate(model.lanes)
        for i, r in enumerate(rs)
        if r.query_id == model.query and 0 < r.batch < model.number - 1
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


def lose_headers(model: Model) -> None:
    number = next(i for i, m in enumerate(model.messages) if m.more)
    model.messages[number] = replace(model.messages[number], more=())


def exchange_null(model: Model) -> None:
    number = next(i for i, m in enumerate(model.messages) if m.key() is None and m.value())
    model.messages[number] = replace(model.messages[number], record=(model.messages[number].value(), None))


def go_elsewhere(model: Model) -> None:
    """The last record of one partition is in the other one."""
    message = model.messages.pop()
    model.messages.append(replace(message, place=1 - message.place, at=model.ends[1 - message.place]))
    model.ends[1 - message.place] += 1


@pytest.mark.parametrize(
    ("fault", "chosen", "found_by"),
    [(lose_headers, False, {2}), (exchange_null, False, {2}), (go_elsewhere, True, {2}), (go_elsewhere, False, set())],
)
def test_format_2_tells_apart_what_format_1_did_not(
    fault: Callable[[Model], None], chosen: bool, found_by: set[int]
) -> None:
    for version in (1, 2):
        model = written([([9], 0)], audited=False, changed=(frozenset(), 0 if version == 2 else 9), chosen=chosen)
        if version == 1:
            model.messages = [replace(m, more=[("kind", b"odd")]) for m in model.messages]
            model.lanes = [[replace(r, placed=None) for r in lane] for lane in model.lanes]
        fault(model)
        assert [f.kind for f in model.verify()] == (["altered"] if version in found_by else [])


def test_lanes_of_different_formats_are_not_added_up_and_not_called_clean() -> None:
    model = written([([3, 3], 0), ([2], 0)], audited=False)
    model.lanes[1][0] = replace(model.lanes[1][0], format=1)
    assert [(f.kind, f.violation) for f in model.verify()] == [("mixed_format", False)]


@pytest.mark.parametrize("query_index", [0, 1])
@pytest.mark.parametrize("audited", [True, False])
@pytest.mark.parametrize("fault", ["lost", "twice"])
def test_a_fault_is_in_the_right_batch_of_the_right_query(query_index: int, audited: bool, fault: str) -> None:
    """Both queries have written records of the same names."""
    model = written([([6], 0)] * 6, audited, (frozenset({3}), 0))
    query = f"q{query_index + 1}"
    batch = next(r for r in model.lanes[0] if (r.query_id, r.batch) == (query, 1))
    begin = {int(p): offset for p, offset in batch.sink_start[TOPIC].items()}
    number, message = next((i, m) for i, m in enumerate(model.messages) if m.at >= begin[m.place])
    if fault == "lost":
        del model.messages[number]
        kinds = {"lost"}
    else:  # in a hole that a marker has left
        last = next(m for m in reversed(model.messages[number : number + 6]) if m.place == message.place)
        model.messages.append(replace(message, at=last.at + 1))
        kinds = {"duplicate"} if audited else {"surplus"}
    found = model.verify()
    assert {f.kind for f in found} >= kinds
    assert {(f.query, f.batch) for f in found} == {(query, 1)}
    assert query in found[0].what


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
    boundaries = Boundaries({0: [10, 20]})
    assert [boundaries.batch_at(0, offset)[0] for offset in (9, 10, 19, 20, 99)] == [None, 0, 0, 1, 1]
