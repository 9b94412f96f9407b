"""Counts and checksums of a lane's rows. A replay of the lane must give the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ckpt_stream.protocol.ledger.checksum import add as add_checksums
from ckpt_stream.protocol.ledger.checksum import partition_weights


@dataclass
class LaneSums:
    """Counts and checksums of a lane's rows."""

    records: int = 0
    bytes: int = 0
    checksum: int = 0
    #: The checksum weighted by partition; None as soon as Kafka's client chooses the partition of a record.
    placed: int | None = 0
    dead_letters: int = 0
    dead_letter_checksum: int = 0

    def compared(self, *, with_places: bool) -> tuple[int, int, int | None, int, int]:
        """The values that must be equal in a replay of the lane."""
        placed = self.placed if with_places else None
        return self.records, self.checksum, placed, self.dead_letters, self.dead_letter_checksum

    def add(self, rows: Any) -> None:
        """Add one Arrow record batch; Spark has computed the hashes in it."""
        import pyarrow.compute as pc

        hashes, dead, partitions = rows.column("hash"), column(rows, "dead_letter"), column(rows, "partition")
        if dead is not None and pc.any(dead).as_py():
            dead_hashes = hashes.filter(dead)
            self.dead_letters += len(dead_hashes)
            self.dead_letter_checksum = add_checksums(self.dead_letter_checksum, _sum(dead_hashes))
            alive = pc.invert(dead)
            hashes = hashes.filter(alive)
            partitions = None if partitions is None else partitions.filter(alive)
        self.records += len(hashes)
        self.checksum = add_checksums(self.checksum, _sum(hashes))
        if partitions is None or partitions.null_count:
            self.placed = None
        elif self.placed is not None:
            self.placed = add_checksums(
                self.placed, _sum(hashes, partition_weights(partitions.to_numpy(zero_copy_only=False)))
            )
        self.bytes += sum(int(pc.sum(pc.binary_length(rows.column(c))).as_py() or 0) for c in ("key", "value"))


def column(rows: Any, name: str) -> Any | None:
    """A column of an Arrow record batch; None if it has no such column."""
    index = rows.schema.get_field_index(name)
    return rows.column(index) if index >= 0 else None


def _sum(hashes: Any, weights: Any | None = None) -> int:
    """The sum of signed 64-bit hashes modulo 2**64; numpy wraps around at that."""
    import numpy as np

    if not len(hashes):
        return 0
    numbers = hashes.to_numpy(zero_copy_only=False).view(np.uint64)
    with np.errstate(over="ignore"):
        return int(np.add.reduce(numbers if weights is None else numbers * weights, dtype=np.uint64))
