"""Both ledger formats on a real broker: what the sums of each cover."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_ckpt.verify.verdict import CLEAN
from tests.support.written_sink import KIND, Written, rows

pytestmark = pytest.mark.integration


def test_a_stream_that_changed_over_to_format_2_is_clean(written: Callable[..., Written]) -> None:
    sink = written(lanes=2)
    sink.format = 1
    sink.batch([(None, "x"), ("y", None)], headers=KIND)
    sink.format = 2
    sink.batch([*rows(20), (None, "x"), ("y", None)], headers=KIND)
    sink.batch(rows(20), headers=KIND, chosen=[1, 0, 1])
    verdict = sink.verdict()
    assert verdict.verdict == CLEAN, verdict.findings
    assert verdict.sink_committed == 44


@pytest.mark.parametrize(("version", "found"), [(1, []), (2, [(0, "altered"), (1, "altered"), (2, "altered")])])
def test_since_format_2_a_header_a_null_and_a_chosen_partition_are_a_part_of_a_record(
    written: Callable[..., Written], version: int, found: list[tuple[int, str]]
) -> None:
    sink = written(audit=False)
    sink.format = version
    sink.batch([("k", "v")], headers=[(("kind", b"odd"),)], claim_headers=[(("kind", b"even"),)])
    sink.batch([("k", None)], claim=[(None, "k")])
    sink.batch([("k", "v")], chosen=[0], claim_chosen=[1] if version > 1 else None)
    assert [(f.batch, f.kind) for f in sink.verdict().findings] == found
