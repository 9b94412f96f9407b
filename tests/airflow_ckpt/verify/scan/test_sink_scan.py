"""Messages as a consumer hands them over, partitions mixed and beyond the end: each is added to its batch or to none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ckpt.exceptions import ScanStuck
from airflow_ckpt.verify.scan.sink_scan import Gathered, reader_settings
from ckpt_stream.protocol.ledger.checksum import weighted_checksum
from ckpt_stream.protocol.verification.scan_result import Boundaries, Sums
from tests.airflow_ckpt.verify.test_histories import Message, hash_of

pytestmark = pytest.mark.unit

BOUNDARIES = Boundaries({0: [10, 20, 20], 1: [0, 5, 30]})
STOPS = {0: 40, 1: 35}


def message(partition: int, offset: int) -> Message:
    return Message(partition, offset, (b"k%d" % partition, b"v%d" % offset), None)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 6)), max_size=30),
    st.lists(st.integers(1, 3), min_size=60, max_size=60),
    st.integers(1, 9),
)
@settings(max_examples=100, deadline=None)
def test_every_message_is_added_to_the_batch_in_which_it_lies(
    parts: list[tuple[int, int]], steps: list[int], at_once: int
) -> None:
    offsets, found, size = [0, 0], [], iter(steps * 10)
    for partition, count in parts:
        for _ in range(count):
            found.append(message(partition, offsets[partition]))
            offsets[partition] += next(size)
    expected: dict[int | None, Sums] = {}
    for m in found:
        if m.at < STOPS[m.place]:
            index, _ = BOUNDARIES.batch_at(m.place, m.at)
            sums = expected.setdefault(index, Sums())
            sums.records += 1
            hashed = hash_of(m.key(), m.value())
            sums.checksum = (sums.checksum + hashed) % 2**64
            sums.placed = (sums.placed + weighted_checksum(hashed, m.place)) % 2**64
    gathered = Gathered("sink", BOUNDARIES, STOPS)
    for first in range(0, len(found), at_once):
        gathered.add(found[first : first + at_once])
    result = gathered.finish()
    assert result.batches == expected
    assert result.records == sum(sums.records for sums in expected.values())


def test_a_record_behind_the_end_is_left_out() -> None:
    gathered = Gathered("sink", BOUNDARIES, STOPS)
    gathered.add([message(0, 39), message(0, 40), message(1, 35), message(0, 41)])
    hashed = hash_of(b"k0", b"v39")
    assert gathered.finish().batches == {2: Sums(1, hashed, weighted_checksum(hashed, 0))}


@dataclass(frozen=True)
class Broken(Message):
    def error(self) -> Any:
        return KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


def test_an_error_among_the_messages_ends_the_scan() -> None:
    with pytest.raises(ScanStuck, match="authorization"):
        Gathered("sink", BOUNDARIES, STOPS).add([message(0, 10), Broken(0, 11, (None, None), None)])


def test_a_reader_changes_nothing_and_is_told_of_offsets_that_are_gone() -> None:
    """Where an offset is gone, the client would else go on at the topic's end, and the records between would seem lost."""
    given = reader_settings({"bootstrap.servers": "broker:1", "auto.offset.reset": "earliest"}, "read_uncommitted")
    assert (given["auto.offset.reset"], given["isolation.level"]) == ("error", "read_uncommitted")
    assert (given["enable.auto.commit"], given["allow.auto.create.topics"]) == (False, False)
    assert reader_settings({})["isolation.level"] == "read_committed"
