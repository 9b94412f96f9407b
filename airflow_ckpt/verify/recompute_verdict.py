"""The verdict at depth `recompute`, from the result file of the Spark job. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_ckpt.exceptions import NoResult, OtherVersion
from airflow_ckpt.verify.verdict import RECOMPUTE, Finding, Verdict

RESULT_FORMAT = 1
#: The name of a fault in the result, the name of the finding, its meaning, and what to do.
FAULTS = (
    (
        "lost",
        "lost",
        "should be in the sink and is not",
        "find out why it was not written: its source records are in the committed range",
    ),
    (
        "duplicated",
        "duplicate",
        "is in the sink too often",
        "find out which run wrote it, and how it passed the ledger check",
    ),
    (
        "alien",
        "alien",
        "is in the sink and comes from no source record",
        "another producer writes to the sink, or the transform is not a function of its input alone, or was changed",
    ),
)


def verdict_of(text: str, stream: str | None = None) -> Verdict:
    """Read the job's result file."""
    try:
        result = json.loads(text)
        if result["format"] != RESULT_FORMAT:
            raise OtherVersion(
                f"The result has format {result['format']!r}; this version reads format {RESULT_FORMAT}."
            )
        return _verdict(result, stream or result["stream"])
    except (ValueError, KeyError, TypeError) as e:
        raise NoResult(f"Not the result of a recomputation: {text[:200]!r}") from e


def _verdict(result: Mapping[str, Any], stream: str) -> Verdict:
    verdict = Verdict(stream, RECOMPUTE, time=result["time"], seconds=result["seconds"])
    verdict.last_batch = result["last_batch"]
    verdict.first_batch = None if verdict.last_batch is None else 0
    verdict.source_records = result["source_records"]
    verdict.sink_committed = result["found"]
    verdict.recomputed = result["expected"]
    verdict.lost, verdict.duplicated, verdict.alien = result["lost"], result["duplicated"], result["alien"]
    if verdict.seconds and verdict.sink_committed is not None:
        verdict.records_per_second = round(verdict.sink_committed / verdict.seconds)
    for unknown in result["unknown"]:
        verdict.findings.append(Finding(unknown["kind"], unknown["what"], unknown["helps"], violation=False))
    verdict.findings.extend(_faults(result))
    if verdict.sink_committed is None and not verdict.findings:
        raise NoResult("The result of the recomputation has neither numbers nor a reason why it has none.")
    return verdict


def _faults(result: Mapping[str, Any]) -> Iterator[Finding]:
    sink = result["sink"]
    for name, kind, words, helps in FAULTS:
        left = result[name] or 0
        for example in result["examples"]:
            if example["kind"] != name:
                continue
            count = example["records"]
            left -= count
            times = f" ({count} times)" if count > 1 else ""
            at = "" if example["offset"] is None else f" at {sink}-{example['partition']} offset {example['offset']}"
            record = f"key {_shown(example['key'])} and value {_shown(example['value'])}"
            yield Finding(
                kind, f"The record with {record}{at} {words}{times}.", helps,
                topic=sink, partition=example["partition"], offset=example["offset"], records=count,
            )  # fmt: skip
        if left > 0:
            yield Finding(kind, f"{left} more record(s) each of which {words}.", helps, topic=sink, records=left)


def _shown(text: str | None) -> str:
    return "null" if text is None else repr(text)
