"""The hash of a record as a Spark column: the same number as in `ckpt_stream.protocol.ledger.checksum`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckpt_stream.protocol.ledger.checksum import AUDIT_HEADER, NULL
from ckpt_stream.protocol.ledger.ledger_record import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import Column


def record_hash_column(
    key: Column | str = "key",
    value: Column | str = "value",
    headers: Column | str | None = None,
    ledger_format: int = FORMAT,
) -> Column:
    """The hash of a record as a Spark column (a signed long), over two binary columns and Kafka's headers."""
    from pyspark.sql import functions as F

    if ledger_format == 1:
        return F.xxhash64(key, value)
    null: Column = F.lit(bytearray(NULL))
    parts = [F.coalesce(F.col(part) if isinstance(part, str) else part, null) for part in (key, value)]
    if headers is not None:
        counted = F.filter(headers, lambda h: h["key"] != AUDIT_HEADER)
        parts.append(F.transform(counted, lambda h: F.struct(h["key"], F.coalesce(h["value"], null))))
    return F.xxhash64(*parts)
