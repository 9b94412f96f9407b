"""A start on a checkpoint without batches: fresh, from the ledger of an earlier query, or refused."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from ckpt_stream.errors import ForeignLedger, LanesChanged, LedgerLost, SinkRecreated
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, LedgerRecord
from ckpt_stream.protocol.ledger.reconciliation import AnchorsToWrite, Reconciliation, Resume
from ckpt_stream.protocol.run_files.adoption import Adoption
from tests.ckpt_stream.protocol.ledger.reconciling import NO_BATCHES, refusal_of, start
from tests.ckpt_stream.samples import QUERY, held

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("ledger", [(), (None,), (None, None, None)])
def test_an_empty_checkpoint_and_an_empty_ledger_are_a_fresh_start(ledger: tuple[None, ...]) -> None:
    assert start(NO_BATCHES, *ledger) == Reconciliation(Resume.FRESH)


def test_a_fresh_start_on_a_used_ledger_is_refused_although_the_checkpoint_has_no_query_yet() -> None:
    refused = refusal_of(ForeignLedger, NO_BATCHES, held(7))
    assert "batch 7" in refused.found
    assert "None" not in refused.found
    assert 'start="ledger"' in refused.helps
    assert "airflow-ckpt ledger reset orders" in refused.helps


def test_a_complete_ledger_is_adopted() -> None:
    verdict = start(NO_BATCHES, *(held(7, lane, 3) for lane in range(3)), lanes=3, adopt=True)
    assert verdict == Reconciliation(Resume.ADOPTED, adopt=Adoption(QUERY, 7))


def test_lanes_left_over_from_a_wider_ledger_do_not_hinder_its_adoption_even_if_their_clock_was_ahead() -> None:
    later = "2026-12-31T00:00:00.000+00:00"
    ledger = held(9), held(7, 1, 3, time=later), held(7, 2, 3, time=later, query_id="query-0")
    assert start(NO_BATCHES, *ledger, adopt=True).adopt == Adoption(QUERY, 9)


@pytest.mark.parametrize(
    "ledger",
    [
        (held(7, 0, 2), held(6, 1, 2)),
        (held(6, 0, 2), held(7, 1, 2)),
        (held(7, 0, 2), None),
        (None, held(0, 1, 2)),
        (held(7, 0, 2),),
        (held(7, 0, 2, query_id="query-0"), held(0, 1, 2)),
    ],
)
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_ledger_with_an_unfinished_batch_is_not_adopted(ledger: Sequence[LedgerRecord | None], lanes: int) -> None:
    refused = refusal_of(LedgerLost, NO_BATCHES, *ledger, lanes=lanes, adopt=True)
    _, *lanes_named = refused.found.rstrip(".").split("lane ")
    for lane, last in enumerate(ledger):
        assert lanes_named[lane].startswith(str(lane))
        held_there = f"batch {last.batch} of query {last.query_id}" if last else ""
        assert held_there in lanes_named[lane]
        assert ("batch" in lanes_named[lane]) == (last is not None)
    assert refused.helps


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_a_ledger_is_adopted_with_its_own_number_of_lanes_only(before: int, after: int) -> None:
    ledger = [held(7, lane, before) for lane in range(before)]
    refused = refusal_of(LanesChanged, NO_BATCHES, *ledger, lanes=after, adopt=True)
    assert re.findall(r"\d+", refused.found) == [str(before), str(after)]
    assert f"lanes={before}" in refused.helps


def test_a_ledger_that_speaks_of_another_sink_is_not_adopted() -> None:
    refused = refusal_of(SinkRecreated, NO_BATCHES, held(7, topic_id="topic-0"), adopt=True)
    assert "topic-0" in refused.found
    assert "ledger reset orders" in refused.helps


@pytest.mark.parametrize("ledger", [(), (None, None)])
def test_an_empty_ledger_is_not_adopted_and_the_message_names_another_start(ledger: tuple[None, ...]) -> None:
    refused = refusal_of(LedgerLost, NO_BATCHES, *ledger, adopt=True)
    assert "orders.ledger" in refused.found
    assert "sink_id" in refused.helps
    assert 'start="earliest"' in refused.helps


def test_an_interrupted_change_is_finished_when_the_ledger_is_adopted() -> None:
    ledger = held(7, 0, 2), held(7, 1, 3, kind=ANCHOR)
    verdict = start(NO_BATCHES, *ledger, lanes=2, adopt=True)
    assert (verdict.adopt, verdict.anchors) == (Adoption(QUERY, 7), AnchorsToWrite(ledger[0], (1,)))
