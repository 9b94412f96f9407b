"""The documents of a recomputation: the request in the stream's configuration, and the result."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ckpt_stream.errors import ConfigError
from ckpt_stream.protocol.run_files.record_files import now

RESULT_FORMAT = 1


@dataclass(frozen=True)
class RecomputeRequest:
    """The request for a recomputation: ``"recompute": {...}`` in the stream's configuration."""

    #: The file for the result, as a path for Spark.
    result: str
    #: The last batch to compare; None: the newest committed batch.
    until: int | None = None
    #: A folder that all executors can reach, for state and output of replayed batches; by default beside the run record.
    scratch: str | None = None


def take_request(text: str) -> tuple[RecomputeRequest | None, str]:
    """The request in a configuration, if there is one, and the configuration without it."""
    try:
        document = json.loads(text)
    except ValueError:
        return None, text
    if not isinstance(document, dict) or "recompute" not in document:
        return None, text
    request = document.pop("recompute")
    try:
        return RecomputeRequest(**request), json.dumps(document)
    except TypeError as e:
        raise ConfigError(f'"recompute" takes result, until and scratch: {e}') from e


@dataclass
class RecomputeResult:
    """The document that a recomputation writes."""

    stream: str
    sink: str
    mode: str | None = None
    last_batch: int | None = None
    source_records: int | None = None
    expected: int | None = None
    found: int | None = None
    lost: int | None = None
    duplicated: int | None = None
    alien: int | None = None
    #: Each with kind, records, key, value and, for records in the sink, partition and offset.
    examples: list[dict[str, Any]] = field(default_factory=list)
    #: The reasons that the comparison could not be made, each with kind, what, helps.
    unknown: list[dict[str, str]] = field(default_factory=list)
    time: str = field(default_factory=now)
    seconds: float = 0.0
    format: int = RESULT_FORMAT

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))
