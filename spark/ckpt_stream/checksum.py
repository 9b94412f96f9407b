"""The order-free checksum of records: the same number in Spark SQL, in the lane and in whoever reads the sink.

Each record has a 64-bit hash of its key and value; a set of records has the sum of its hashes modulo 2**64. Sums of
lanes, batches and partitions can therefore be added up and compared in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Spark's seed for xxhash64; chaining starts from it on both sides.
SEED = 42
MASK = (1 << 64) - 1


def checksum_of(keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> int:
    """The checksum of records, each hashed as Spark's ``xxhash64(key, value)`` does.

    Key and value are chained through the seed; a null leaves it as it is. The library behind it is needed by readers of
    the sink only, never on a cluster, so it is imported here.
    """
    from xxhash import xxh64_intdigest

    digest: Callable[..., int] = xxh64_intdigest

    # Without nulls the interpreter is left out of it, which halves the time.
    if None in keys:
        seeds: Iterable[int] = [SEED if key is None else digest(key, SEED) for key in keys]
    else:
        seeds = map(digest, keys, repeat(SEED))
    if None in values:
        hashes: Iterable[int] = (
            seed if value is None else digest(value, seed) for value, seed in zip(values, seeds, strict=True)
        )
    else:
        hashes = map(digest, values, seeds)
    return sum(hashes) & MASK


def record_hash_column(key: Column | str = "key", value: Column | str = "value") -> Column:
    """The same hash as a Spark column (a signed long) over two binary columns."""
    from pyspark.sql import functions as F

    return F.xxhash64(key, value)


def add(total: int, hashed: int) -> int:
    """Add a hash or a checksum, signed or not, to a checksum."""
    return (total + hashed) & MASK
