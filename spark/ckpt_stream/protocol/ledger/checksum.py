"""The order-free checksum of records: the same number in Spark SQL, in the lane and in a reader of the sink.

Each record has a 64-bit hash, chained through Spark's seed over its key, its value, and the name and value of each header; a
null is hashed as a marker that differs from every value. The checksum of a set of records is the sum of their hashes modulo
2**64. So the checksums of lanes, batches and partitions can be added up and compared in any order. If the transform chooses the
partition of every record, a second sum weighs every hash by the partition: it changes when a record is in another partition.

Ledger format 1 hashed only key and value, and left nulls out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

from ckpt_stream.protocol.ledger.ledger_record import FORMAT

#: Spark's seed for xxhash64; chaining starts from it on both sides.
SEED = 42
MASK = (1 << 64) - 1
#: Replaces a null key, value or header value in the hash; no application writes these bytes.
NULL = bytes.fromhex("c3a1f95e0b7d4d2e9a64de7718b05c3f")
#: The header that the sink adds when a stream is audited record by record; the checksum leaves it out.
AUDIT_HEADER = "ckpt"

#: Headers as Kafka's client gives them.
Headers = Sequence[tuple[str, bytes | None]]


def checksum_of(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers | None] | None = None,
    ledger_format: int = FORMAT,
) -> int:
    """The checksum of records that were read from Kafka.

    Only readers of the sink need the hash library, and a cluster may not have it, so it is imported here.
    """
    from xxhash import xxh64_intdigest

    digest: Callable[..., int] = xxh64_intdigest
    if ledger_format == 1:
        return sum(_passing_over_nulls(digest, keys, values)) & MASK
    hashes: Iterable[int] = map(digest, _marked(values), map(digest, _marked(keys), repeat(SEED)))
    if headers is not None and any(headers):
        hashes = [_chained(digest, h, found) if found else h for h, found in zip(hashes, headers, strict=True)]
    return sum(hashes) & MASK


def _marked(parts: Sequence[bytes | None]) -> Sequence[bytes]:
    # Without nulls no Python code runs per record, which halves the time.
    return [NULL if part is None else part for part in parts] if None in parts else parts  # type: ignore[return-value]


def _chained(digest: Callable[..., int], seed: int, headers: Headers) -> int:
    for name, value in headers:
        if name != AUDIT_HEADER:
            seed = digest(NULL if value is None else value, digest(name.encode(), seed))
    return seed


def _passing_over_nulls(
    digest: Callable[..., int], keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> Iterable[int]:
    """Format 1."""
    seeds = (SEED if key is None else digest(key, SEED) for key in keys)
    return (seed if value is None else digest(value, seed) for value, seed in zip(values, seeds, strict=True))


def weighted_checksum(checksum: int, partition: int) -> int:
    """Compute the weighted checksum of records that are all in one partition from their checksum."""
    return checksum * int(partition_weights([partition])[0]) & MASK


def partition_weights(partitions: Any) -> Any:
    """An odd 64-bit factor for each partition, as a numpy array; factors of neighbours differ in many bits (splitmix64)."""
    import numpy as np

    with np.errstate(over="ignore"):
        z = np.asarray(partitions).astype(np.uint64) + np.uint64(1)
        z = z * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))) | np.uint64(1)


def add(total: int, hashed: int) -> int:
    """Add a hash or a checksum, signed or not, to a checksum."""
    return (total + hashed) & MASK
