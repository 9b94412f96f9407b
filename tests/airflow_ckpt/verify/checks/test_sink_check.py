"""The sink against the ledger, batch by batch: what differs is a violation, and what cannot be compared is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from airflow_ckpt.verify.checks.sink_check import compare_dead_letters, compare_sink, readable_part, weighted_sum
from airflow_ckpt.verify.dead_letters import dead_letters_of
from airflow_ckpt.verify.verdict import TRUNCATED, Finding
from ckpt_stream.protocol.ledger.ledger_batches import Batch, batches_of
from ckpt_stream.protocol.topic_ends import TopicEnds
from ckpt_stream.protocol.verification.consistent_cut import ConsistentCut
from ckpt_stream.protocol.verification.scan_result import Boundaries, Scan, Sums
from tests.ckpt_stream.samples import held

pytestmark = pytest.mark.unit

LEFT_OUT = Sums(3, 11)


def one(**changes: Any) -> Batch:
    """A batch of ten records with the checksum 77."""
    (batch,) = batches_of([[held(0, **{"checksum": 77, **changes})]])
    return batch


def compared(batch: Batch, found: Sums, *, before: Sums | None = None) -> list[tuple[str, int | None]]:
    sums: dict[int | None, Sums] = {0: found} if before is None else {0: found, None: before}
    findings = list(compare_sink([batch], Scan(sums), "sink"))
    assert all(f.violation for f in findings)
    return [(f.kind, f.records) for f in findings]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Sums(10, 77), []),
        (Sums(8, 70), [("lost", 2)]),
        (Sums(11, 80), [("surplus", 1)]),
        (Sums(10, 78), [("altered", None)]),
        (Sums(), [("lost", 10)]),
    ],
)
def test_a_batch_has_the_records_that_the_ledger_says(found: Sums, expected: list[tuple[str, int | None]]) -> None:
    assert compared(one(), found) == expected


def test_records_before_the_first_batch_are_alien() -> None:
    assert compared(one(), Sums(10, 77), before=LEFT_OUT) == [("alien", 3)]
    assert compared(one(), Sums(10, 77), before=Sums()) == []


def test_records_in_other_partitions_than_the_transform_chose_are_altered() -> None:
    assert compared(one(placed=5), Sums(10, 77, 5)) == []
    assert compared(one(placed=5), Sums(10, 77, 6)) == [("altered", None)]
    assert compared(one(placed=None), Sums(10, 77, 6)) == [], "the transform chose no partition"


def test_checksums_of_different_formats_are_not_compared() -> None:
    """They cannot be added up: the check of the ledger says so, and nothing was altered."""
    (mixed,) = batches_of([[held(0, 0, 2, placed=5)], [held(0, 1, 2, format=1, placed=5)]])
    assert compared(mixed, Sums(20, 1, 2)) == []
    assert compared(mixed, Sums(19, 1, 2)) == [("lost", 1)]
    assert weighted_sum(mixed) is None


def test_an_empty_lane_has_chosen_no_partition_and_keeps_the_others_comparable() -> None:
    (batch,) = batches_of([[held(0, 0, 2, placed=5)], [held(0, 1, 2, records=0, checksum=0, placed=None)]])
    assert weighted_sum(batch) == 5


def test_dead_letters_that_are_missing_are_a_violation_and_surplus_ones_are_unknown() -> None:
    """Streams may share the topic."""
    batch = dead_letters_of(one(dead_letter_topic="dead", dead_letters=4, dead_letter_checksum=9), "dead")

    def of(found: Sums, before: Sums | None = None) -> list[tuple[str, bool]]:
        sums: dict[int | None, Sums] = {0: found} if before is None else {0: found, None: before}
        return [(f.kind, f.violation) for f in compare_dead_letters([batch], Scan(sums), "dead")]

    assert of(Sums(4, 9)) == []
    assert of(Sums(3, 8)) == [("dead_letter_lost", True)]
    assert of(Sums(4, 8)) == [("dead_letter_altered", True)]
    assert of(Sums(5, 9)) == [("dead_letter_surplus", False)]
    assert of(Sums(4, 9), LEFT_OUT) == [("dead_letter_surplus", False)]


def test_of_a_batch_with_another_dead_letter_topic_none_is_expected_here() -> None:
    batch = dead_letters_of(one(dead_letter_topic="another", dead_letters=4, dead_letter_checksum=9), "dead")
    assert list(compare_dead_letters([batch], Scan({}), "dead")) == []


@pytest.mark.parametrize(
    ("kinds", "batches"), [([], 2), ([TRUNCATED], 1), (["sink_compacted"], None), ([TRUNCATED, "sink_compacted"], None)]
)
def test_only_what_retention_has_left_can_be_read(kinds: Sequence[str], batches: int | None) -> None:
    cut = ConsistentCut(batches_of([[held(0), held(1)]]), {0: 0}, {0: 20}, Boundaries({0: [0, 10]}, [2, 2]))
    unknown = [Finding(kind, "", violation=False) for kind in kinds]
    rest = readable_part(cut, unknown, TopicEnds({0: 4}, {0: 20}, {0: 20}))
    assert (None if rest is None else len(rest.batches)) == batches


def test_where_retention_has_left_no_whole_batch_nothing_is_read() -> None:
    cut = ConsistentCut(batches_of([[held(0)]]), {0: 0}, {0: 10}, Boundaries({0: [0]}, [2]))
    unknown = [Finding(TRUNCATED, "", violation=False)]
    assert readable_part(cut, unknown, TopicEnds({0: 4}, {0: 10}, {0: 10})) is None
