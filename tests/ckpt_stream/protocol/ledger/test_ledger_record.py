"""The ledger's record as bytes: what is written is read back, and what is not ours is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_stream.errors import LedgerFormatError
from ckpt_stream.protocol.checkpoint.checkpoint_log import input_digest
from ckpt_stream.protocol.ledger.ledger_record import (
    ANCHOR,
    BATCH,
    LedgerRecord,
    ledger_topic,
    record_key,
    sink_start,
    sink_starts,
    transactional_id,
)
from tests.ckpt_stream.samples import held

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "record",
    [
        held(5),
        held(0, 2, 3, kind=ANCHOR, records=0, checksum=0),
        held(5, dead_letter_topic="wrong", dead_letters=3, dead_letter_checksum=2**64 - 1),
        held(5, start={}, end={}, application="ünïcode \U0001f40e"),
        held(5, placed=2**64 - 1, offsets='v1\n{"batchTimestampMs":1}\n{"source":{"0":60}}'),
        held(0, adopted={"query_id": "query-0", "batch": 7}),
        held(5, format=1),
    ],
)
def test_a_record_is_read_back_as_it_was_written(record: LedgerRecord) -> None:
    assert LedgerRecord.from_json(record.to_json()) == record


def test_a_record_says_all_that_the_protocol_asks_of_it() -> None:
    document = json.loads(held(5, 1, 3).to_json())
    asked = {
        "format": 2,
        "sink_id": "orders",
        "query_id": "query-1",
        "run_id": "run-1",
        "lane": 1,
        "lanes": 3,
        "batch": 5,
        "digest": "input-5",
        "start": {"source": {"0": 50}},
        "end": {"source": {"0": 60}},
        "records": 10,
        "checksum": 2**64 - 1,
        "topic": "orders-out",
        "topic_id": "topic-1",
        "application": "1.0",
        "time": "2026-11-01T00:00:00.000+00:00",
        "kind": "batch",
        "dead_letter_topic": None,
        "dead_letters": 0,
        "dead_letter_checksum": 0,
        "placed": None,
        "offsets": None,
        "adopted": None,
    }
    assert {name: document.get(name, "missing") for name in asked} == asked


def test_a_record_of_format_1_has_no_field_that_the_versions_which_write_it_do_not_know() -> None:
    document = json.loads(held(5, format=1).to_json())
    assert document["format"] == 1
    assert not {"placed", "offsets", "adopted"} & set(document)


def test_the_key_names_lane_and_batch() -> None:
    assert held(5, 2).key == record_key(2, 5) == b"2/5"


@given(st.tuples(st.integers(0, 1023), st.integers(0, 10**9), st.sampled_from([BATCH, ANCHOR])), st.data())
@settings(max_examples=50, deadline=None)
def test_no_two_records_share_a_key_so_that_compaction_never_replaces_one_by_another(
    one: tuple[int, int, str], data: st.DataObject
) -> None:
    near = st.tuples(
        st.sampled_from([one[0], 1, 11]), st.sampled_from([one[1], 1, 11]), st.sampled_from([BATCH, ANCHOR])
    )
    other = data.draw(near)
    assert (record_key(*one) == record_key(*other)) == (one == other)


def test_an_anchor_never_replaces_the_batch_that_it_repeats() -> None:
    assert held(5, kind=ANCHOR).key != held(5).key


@pytest.mark.parametrize("version", [3, 0, "2", None])
def test_a_record_of_another_format_is_refused_by_its_number(version: object) -> None:
    document = {**json.loads(held(5).to_json()), "format": version, "new_field": 1}
    with pytest.raises(LedgerFormatError, match="newer airflow-ckpt") as refusal:
        LedgerRecord.from_json(json.dumps(document).encode())
    assert f"format {version!r};" in str(refusal.value)
    assert refusal.value.restart_may_help is False


@pytest.mark.parametrize(
    "value", [b"", b"\xff\xfe", b"null", b"5", b"[]", b'"format"', b"{}", b'{"batch": 5}', b"[" * 100_000]
)
def test_foreign_bytes_are_refused_and_shown(value: bytes) -> None:
    with pytest.raises(LedgerFormatError) as refusal:
        LedgerRecord.from_json(value)
    assert repr(value[:200]) in str(refusal.value)


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_no_bytes_lead_to_another_error(value: bytes) -> None:
    with pytest.raises(LedgerFormatError):
        LedgerRecord.from_json(value)


def test_a_field_that_a_later_version_added_is_ignored_so_that_a_user_can_roll_back() -> None:
    document = {**json.loads(held(5).to_json()), "surprise": 1}
    assert LedgerRecord.from_json(json.dumps(document).encode()) == held(5)


def test_a_record_with_missing_fields_is_refused() -> None:
    document = {name: value for name, value in json.loads(held(5).to_json()).items() if name != "batch"}
    with pytest.raises(LedgerFormatError, match="missing fields"):
        LedgerRecord.from_json(json.dumps(document).encode())


def test_the_ledger_topic_is_named_after_the_sink() -> None:
    assert ledger_topic("orders") == "orders.ledger"


def test_no_two_lanes_of_any_sinks_share_a_transactional_id() -> None:
    sinks = ["a", "a-1", "a-1-1", "a-", "1", "a.ledger"]
    pairs = [(sink, lane) for sink in sinks for lane in (0, 1, 10, 11)]
    assert len({transactional_id(*pair) for pair in pairs}) == len(pairs)


def test_the_digest_is_the_beginning_of_sha256_so_that_it_is_the_same_in_every_version() -> None:
    assert input_digest("") == "e3b0c44298fc1c149afbf4c8996fb924"
    assert input_digest("abc") == "ba7816bf8f01cfea414140de5dae2223"


def test_the_digest_changes_with_every_character_of_the_offset_log() -> None:
    text = 'v1\n{"batchTimestampMs":1}\n{"source":{"0":5}}'
    others = {input_digest(text[:i] + "x" + text[i + 1 :]) for i in range(len(text))}
    assert len(others) == len(text)
    assert input_digest(text) not in others


def test_the_start_of_a_batch_that_is_being_forgotten_is_unknown() -> None:
    """Lane 0 began first, at 100, and its record is gone: what the other lane says would make the range too short."""
    first = held(0, 1, 2, sink_start={"out": {"0": 120}})
    later = [held(n, lane, 2, sink_start={"out": {"0": 100 + 50 * n}}) for n in (1, 2) for lane in (0, 1)]
    assert sink_starts([first, *later], "out") == {1: {0: 150}, 2: {0: 200}}


def test_the_start_of_a_newest_batch_that_lacks_lanes_is_known() -> None:
    torn = held(2, 1, 2, sink_start={"out": {"0": 200}})
    whole = [held(1, lane, 2, sink_start={"out": {"0": 150}}) for lane in (0, 1)]
    assert sink_starts([*whole, torn], "out") == {1: {0: 150}, 2: {0: 200}}
    assert sink_starts([torn], "out") == {2: {0: 200}}
    assert sink_starts([], "out") == {}


@pytest.mark.parametrize("earliest", [0, 1])
def test_a_batch_begins_where_its_earliest_attempt_did(earliest: int) -> None:
    """A lane that a later run wrote names an end of the sink behind the records of the other lane."""
    lanes = [held(1, n, 2, sink_start={"out": {"0": 100 if n == earliest else 130, "1": 7}}) for n in (0, 1)]
    assert sink_start(lanes, "out") == {0: 100, 1: 7}


def test_an_anchor_is_no_batch_with_a_start() -> None:
    written = [held(n, sink_start={"out": {"0": 10 * n}}) for n in (3, 4)]
    anchors = [held(4, kind=ANCHOR), held(5, kind=ANCHOR)]
    assert sink_starts([*written, *anchors], "out") == {3: {0: 30}, 4: {0: 40}}
