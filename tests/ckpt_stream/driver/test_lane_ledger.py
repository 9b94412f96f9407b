"""What the ledger keeps of a lane."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from ckpt_stream.driver.lane import ledger_record
from ckpt_stream.driver.lane_spec import LaneSpec
from ckpt_stream.driver.lane_sums import LaneSums
from ckpt_stream.protocol.run_files.adoption import Adoption
from tests.ckpt_stream.driver.lane_writes import spec
from tests.ckpt_stream.samples import about_to_write

pytestmark = pytest.mark.unit

ADOPTED = Adoption("earlier", 7)


def adopting(batch: int) -> LaneSpec:
    return replace(spec(batch), to_write=about_to_write(batch, adopted=ADOPTED))


@pytest.mark.parametrize(("batch", "adopted"), [(0, asdict(ADOPTED)), (1, None)])
def test_the_first_batch_of_a_query_alone_names_the_ledger_that_the_query_has_taken_over(
    batch: int, adopted: dict[str, Any] | None
) -> None:
    assert ledger_record(adopting(batch), 0, LaneSums()).adopted == adopted


def test_a_query_that_has_taken_over_nothing_names_nothing() -> None:
    assert ledger_record(spec(0), 0, LaneSums()).adopted is None


@pytest.mark.parametrize(("ledger_format", "known"), [(1, False), (2, True)])
def test_a_batch_that_was_begun_in_format_1_is_finished_without_what_that_format_lacks(
    ledger_format: int, known: bool
) -> None:
    record = ledger_record(spec(3, ledger_format=ledger_format), 0, LaneSums())
    assert (record.format, record.offsets is not None, record.placed is not None) == (ledger_format, known, known)
