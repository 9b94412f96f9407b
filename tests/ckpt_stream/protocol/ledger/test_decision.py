"""Every row of the table of decisions: what a lane does with a batch, given the last record of its ledger."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ckpt_stream.errors import ForeignLedger, LanesChanged, LedgerAhead, LedgerLost, OtherInput, Refused, SinkRecreated
from ckpt_stream.protocol.ledger.batch_to_write import BatchToWrite
from ckpt_stream.protocol.ledger.decision import Action, LaneDecision, decide
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, LedgerRecord
from ckpt_stream.protocol.run_files.adoption import Adoption
from tests.ckpt_stream.samples import QUERY, about_to_write, held

pytestmark = pytest.mark.unit

PRODUCE = LaneDecision(Action.PRODUCE)
ADOPTED = Adoption("query-0", 7)


def test_the_first_batch_is_written_into_an_empty_ledger() -> None:
    assert decide(None, 0, about_to_write(0)) == PRODUCE


@pytest.mark.parametrize("kind", ["batch", ANCHOR])
def test_a_batch_is_written_after_its_predecessor(kind: str) -> None:
    assert decide(held(4, kind=kind), 0, about_to_write(5)) == PRODUCE


def test_a_batch_in_the_ledger_is_skipped_and_must_add_up_to_its_record() -> None:
    last = held(5)
    assert decide(last, 0, about_to_write(5)) == LaneDecision(Action.SKIP, last)


def test_the_first_batch_is_skipped_when_it_is_in_the_ledger() -> None:
    assert decide(held(0), 0, about_to_write(0)).action is Action.SKIP


def test_an_anchored_batch_is_skipped_without_sums_to_compare() -> None:
    assert decide(held(5, kind=ANCHOR, records=0), 0, about_to_write(5)) == LaneDecision(Action.SKIP, None)


def test_the_first_batch_is_written_after_exactly_the_adopted_record() -> None:
    last = held(7, query_id="query-0")
    assert decide(last, 0, about_to_write(0, adopted=ADOPTED)) == PRODUCE


def test_an_adopted_ledger_is_skipped_like_any_other_once_the_batch_is_in_it() -> None:
    last = held(0)
    assert decide(last, 0, about_to_write(0, adopted=ADOPTED)) == LaneDecision(Action.SKIP, last)


#: ledger, batch to write, refusal, words of: what was found, what would be lost or doubled, what helps.
REFUSALS: dict[str, tuple[LedgerRecord | None, BatchToWrite, type[Refused], Sequence[str], str, str]] = {
    "the ledger is ahead": (
        held(8),
        about_to_write(5),
        LedgerAhead,
        ("batch 5", "lane 2", "orders.ledger", "batch 8"),
        "batches 5 to 8 would be in the sink twice",
        'start="ledger"',
    ),
    "the ledger is ahead by one": (
        held(6),
        about_to_write(5),
        LedgerAhead,
        ("batch 5", "batch 6"),
        "batches 5 to 6 would be in the sink twice",
        "newest checkpoint",
    ),
    "the batch has other input": (
        held(5, digest="input-other"),
        about_to_write(5),
        OtherInput,
        ("batch 5", "Lane 2", "input-other", "input-5", "{'source': {'0': 60}}"),
        "lose records",
        'start="ledger"',
    ),
    "the ledger is empty": (
        None,
        about_to_write(5),
        LedgerLost,
        ("Lane 2", "orders.ledger", "no record at all", "batch 5"),
        "double its records",
        "airflow-ckpt ledger rebuild orders",
    ),
    "the ledger has a gap": (
        held(3),
        about_to_write(5),
        LedgerLost,
        ("Lane 2", "ends with batch 3", "batch 5"),
        "whether batch 5 is in the sink already",
        "airflow-ckpt ledger rebuild orders",
    ),
    "the ledger is another query's": (
        held(4, query_id="query-0"),
        about_to_write(5),
        ForeignLedger,
        ("orders.ledger", "batch 4", "query-0", QUERY),
        "written twice",
        "airflow-ckpt ledger reset orders",
    ),
    "the lanes changed after the predecessor": (
        held(4, lanes=3),
        about_to_write(5, lanes=2),
        LanesChanged,
        ("Batch 4", "lane 2", "3 lane(s)", "2"),
        "lost or doubled",
        "lanes=3",
    ),
    "the lanes changed within the batch": (
        held(5, lanes=1),
        about_to_write(5, lanes=3),
        LanesChanged,
        ("Batch 5", "1 lane(s)", "3"),
        "Batch 5 is in doubt",
        "lanes=1; when batch 5 is committed",
    ),
    "the sink was made again": (
        held(4, topic_id="topic-0"),
        about_to_write(5),
        SinkRecreated,
        ("'orders-out'", "topic-1", "batch 4", "topic-0"),
        "would be missing",
        "airflow-ckpt ledger rebuild orders",
    ),
    "the sink was made again and the batch counts as written": (
        held(5, topic_id="topic-0"),
        about_to_write(5),
        SinkRecreated,
        ("batch 5",),
        "would be missing",
        "former topic",
    ),
    "the adopted ledger is gone": (
        None,
        about_to_write(0, adopted=ADOPTED),
        LedgerLost,
        ("no record at all", "batch 0"),
        "double its records",
        "rebuild",
    ),
    "the adopted ledger went on": (
        held(8, query_id="query-0"),
        about_to_write(0, adopted=ADOPTED),
        ForeignLedger,
        ("batch 8", "query-0"),
        "written twice",
        "another sink_id",
    ),
    "the ledger is not the adopted query's": (
        held(7, query_id="query-x"),
        about_to_write(0, adopted=ADOPTED),
        ForeignLedger,
        ("batch 7", "query-x"),
        "written twice",
        "another sink_id",
    ),
    "nothing was adopted": (
        held(7, query_id="query-0"),
        about_to_write(0),
        ForeignLedger,
        ("batch 7", "query-0"),
        "written twice",
        'start="ledger"',
    ),
    "the ledger still ends where it was adopted": (
        held(7, query_id="query-0"),
        about_to_write(1, adopted=ADOPTED),
        LedgerLost,
        ("batch 7 of the adopted query query-0", "the checkpoint is at batch 1"),
        "double its records",
        "airflow-ckpt ledger rebuild orders",
    ),
    "the lanes changed after the adoption": (
        held(7, query_id="query-0", lanes=3),
        about_to_write(0, lanes=1, adopted=ADOPTED),
        LanesChanged,
        ("3 lane(s)",),
        "lost or doubled",
        "lanes=3",
    ),
    "the sink was made again after the adoption": (
        held(7, query_id="query-0", topic_id="topic-0"),
        about_to_write(0, adopted=ADOPTED),
        SinkRecreated,
        ("topic-0",),
        "would be missing",
        "rebuild",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_anything_else_is_refused_with_what_was_found_what_is_at_risk_and_what_helps(case: str) -> None:
    last, to_write, error, found, risk, helps = REFUSALS[case]
    with pytest.raises(Refused) as refusal:
        decide(last, 2, to_write)
    assert type(refusal.value) is error
    for word in found:
        assert word in refusal.value.found
    assert risk in refusal.value.risk
    assert helps in refusal.value.helps
    assert str(refusal.value) == f"{refusal.value.found} {refusal.value.risk} What helps: {refusal.value.helps}"
    assert refusal.value.restart_may_help is False
