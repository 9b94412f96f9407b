"""The checksum against a second implementation of xxHash, written from its specification."""

from __future__ import annotations

import random

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_stream.protocol.ledger.checksum import (
    AUDIT_HEADER,
    MASK,
    NULL,
    SEED,
    Headers,
    add,
    checksum_of,
    partition_weights,
    weighted_checksum,
)

pytestmark = pytest.mark.unit

P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
NULLABLE = st.none() | st.binary(max_size=80)


HEADERS = st.lists(st.tuples(st.text(max_size=5), NULLABLE), max_size=3)


def record_hash(key: bytes | None, value: bytes | None, headers: Headers | None = None) -> int:
    return checksum_of([key], [value], [headers])


def rotate(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (64 - bits))) & MASK


def mix(accumulator: int, lane: int) -> int:
    return rotate((accumulator + lane * P2) & MASK, 31) * P1 & MASK


def xxh64(data: bytes, seed: int) -> int:
    """XXH64 as its specification describes it."""
    rest = data
    h = (seed + P5) & MASK
    if len(data) >= 32:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while len(rest) >= 32:
            words = [int.from_bytes(rest[i : i + 8], "little") for i in range(0, 32, 8)]
            lanes, rest = [mix(lane, word) for lane, word in zip(lanes, words, strict=True)], rest[32:]
        h = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            h = ((h ^ mix(0, lane)) * P1 + P4) & MASK
    h = (h + len(data)) & MASK
    while len(rest) >= 8:
        h, rest = (rotate(h ^ mix(0, int.from_bytes(rest[:8], "little")), 27) * P1 + P4) & MASK, rest[8:]
    if len(rest) >= 4:
        h, rest = (rotate(h ^ (int.from_bytes(rest[:4], "little") * P1 & MASK), 23) * P2 + P3) & MASK, rest[4:]
    for byte in rest:
        h = rotate(h ^ (byte * P5 & MASK), 11) * P1 & MASK
    h = (h ^ (h >> 33)) * P2 & MASK
    h = (h ^ (h >> 29)) * P3 & MASK
    return h ^ (h >> 32)


def test_the_second_implementation_gives_the_published_values() -> None:
    assert xxh64(b"", 0) == 0xEF46DB3751D8E999
    assert xxh64(b"abc", 0) == 0x44BC2CF5AD770999


@given(NULLABLE, NULLABLE, HEADERS)
@settings(max_examples=200, deadline=None)
def test_a_record_is_hashed_by_chaining_key_value_and_headers_with_a_marker_for_each_null(
    key: bytes | None, value: bytes | None, headers: Headers
) -> None:
    chain = [key, value]
    for name, content in headers:
        chain += [name.encode(), content]
    expected = SEED
    for part in chain:
        expected = xxh64(NULL if part is None else part, expected)
    assert record_hash(key, value, headers) == expected


@given(NULLABLE, NULLABLE)
@settings(max_examples=100, deadline=None)
def test_format_1_of_the_ledger_chains_key_and_value_and_passes_over_a_null(
    key: bytes | None, value: bytes | None
) -> None:
    seed = SEED if key is None else xxh64(key, SEED)
    expected = seed if value is None else xxh64(value, seed)
    assert checksum_of([key], [value], ledger_format=1) == expected


def test_the_numbers_never_change_because_ledgers_hold_them() -> None:
    assert checksum_of([b"key"], [b"value"], ledger_format=1) == 12573424381588390260
    assert checksum_of([None], [b"value"], ledger_format=1) == xxhash.xxh64(b"value", seed=42).intdigest()
    assert record_hash(b"key", b"value") == 12573424381588390260
    assert record_hash(None, b"value") == 2608765323254538616
    assert record_hash(b"key", b"value", [("name", b"text")]) == 7864439884174400110
    assert [weighted_checksum(1, partition) for partition in (0, 1, 1000)] == [
        16294208416658607535,
        7960286522194355701,
        3240954710329600481,
    ]


def test_null_and_empty_are_told_apart_in_key_and_value() -> None:
    forms = [(None, None), (b"", None), (None, b""), (None, b"x"), (b"x", None), (b"", b"x"), (b"x", b""), (b"", b"")]
    assert len({record_hash(*form) for form in forms}) == len(forms)


def test_records_that_only_differ_in_their_headers_are_told_apart() -> None:
    forms: list[Headers] = [
        [],
        [("a", None)],
        [("a", b"")],
        [("a", b"b")],
        [("b", b"a")],
        [("a", b"b"), ("c", b"d")],
        [("c", b"d"), ("a", b"b")],
        [("a", None), ("b", None)],
    ]
    assert len({record_hash(b"k", b"v", form) for form in forms}) == len(forms)
    assert record_hash(b"k", b"v", None) == record_hash(b"k", b"v", [])


def test_the_audit_header_is_no_part_of_a_record() -> None:
    headers: Headers = [("a", b"b"), (AUDIT_HEADER, b"1/0/7")]
    assert record_hash(b"k", b"v", headers) == record_hash(b"k", b"v", headers[:1])


def test_records_that_go_to_other_partitions_have_another_weighted_sum() -> None:
    weights = partition_weights(range(1000))
    assert len(set(weights.tolist())) == 1000
    assert all(weight % 2 for weight in weights.tolist())
    one, two = record_hash(b"1", b"a"), record_hash(b"2", b"b")
    assert add(weighted_checksum(one, 0), weighted_checksum(two, 1)) != add(
        weighted_checksum(one, 1), weighted_checksum(two, 0)
    )
    assert weighted_checksum(add(one, two), 3) == add(weighted_checksum(one, 3), weighted_checksum(two, 3))


def test_key_and_value_cannot_be_exchanged_nor_moved_across_their_border() -> None:
    assert record_hash(b"a", b"b") != record_hash(b"b", b"a")
    assert record_hash(b"ab", b"c") != record_hash(b"a", b"bc")


@given(st.lists(st.tuples(NULLABLE, NULLABLE), max_size=20), st.randoms(use_true_random=False), st.integers(0, 20))
@settings(max_examples=50, deadline=None)
def test_the_sum_is_the_same_in_any_order_and_any_division(
    records: list[tuple[bytes | None, bytes | None]], rng: random.Random, cut: int
) -> None:
    hashes = [record_hash(*record) for record in records]
    whole = 0
    for hashed in hashes:
        whole = add(whole, hashed)
    rng.shuffle(hashes)
    parts = [0, 0]
    for i, hashed in enumerate(hashes):
        parts[i < cut] = add(parts[i < cut], hashed)
    assert add(*parts) == whole == sum(hashes) % 2**64
    assert checksum_of([key for key, _ in records], [value for _, value in records]) == whole


def test_the_sum_is_taken_modulo_two_to_the_64() -> None:
    assert add(2**64 - 1, 1) == 0
    assert add(2**64 - 1, 2**64 - 1) == 2**64 - 2


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
@settings(max_examples=50, deadline=None)
def test_a_signed_hash_of_spark_and_an_unsigned_one_give_the_same_sum(total: int, hashed: int) -> None:
    signed = hashed - 2**64 if hashed >= 2**63 else hashed
    assert add(total, signed) == add(total, hashed)


def test_a_doubled_a_lost_and_a_changed_record_each_change_the_sum() -> None:
    one, two, other = record_hash(b"1", b"a"), record_hash(b"2", b"b"), record_hash(b"2", b"c")
    right = add(one, two)
    assert len({right, add(right, two), one, add(one, other)}) == 4
