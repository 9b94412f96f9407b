"""What a topic no longer holds of a range: by where its partitions begin, and by its cleanup policy."""

from __future__ import annotations

import pytest

from ckpt_stream.protocol.verification.removed_records import Removed, removed_by_compaction, removed_by_retention

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("start", "earliest", "gone"),
    [
        ({}, {0: 9}, None),
        ({0: 5}, {0: 5}, None),
        ({0: 5}, {}, None),
        ({0: 5}, {0: 6}, Removed(0, 5, 6)),
        ({0: 5, 1: 0, 2: 0}, {0: 5, 1: 1, 2: 9}, Removed(1, 0, 1)),
    ],
)
def test_a_range_is_whole_only_if_each_partition_begins_at_or_before_it(
    start: dict[int, int], earliest: dict[int, int], gone: Removed | None
) -> None:
    assert removed_by_retention(start, earliest) == gone


def test_it_is_said_which_partition_begins_where() -> None:
    words = Removed(1, 3, 7).in_words("orders")
    assert words == "orders-1 begins at offset 7, the range at 3: retention has deleted records of it."


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete, compact"])
def test_a_compacted_topic_has_lost_records_however_little_is_missing(policy: str) -> None:
    assert removed_by_compaction("orders", policy) == (
        f"orders has cleanup.policy={policy}: compaction removes records."
    )


def test_a_topic_with_retention_alone_is_not_compacted() -> None:
    assert removed_by_compaction("orders", "delete") is None
