"""The table of verdicts at the start of a run: every way in which a checkpoint and a ledger may stand to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from ckpt_stream.errors import ForeignLedger, LanesChanged, LedgerAhead, LedgerLost, OtherInput, Refused, SinkRecreated
from ckpt_stream.protocol.checkpoint.intact_checkpoint import IntactCheckpoint
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, LedgerRecord
from ckpt_stream.protocol.ledger.reconciliation import Reconciliation, Resume
from ckpt_stream.protocol.run_files.adoption import Adoption
from tests.ckpt_stream.protocol.ledger.reconciling import ADOPTED, NO_BATCHES, refusal_of, start
from tests.ckpt_stream.samples import QUERY, checkpoint_at, held

pytestmark = pytest.mark.unit


@dataclass(frozen=True)
class Case:
    """What a run finds at its start."""

    checkpoint: IntactCheckpoint
    #: The last record of each lane.
    ledger: Sequence[LedgerRecord | None]
    lanes: int = 1
    adopt: bool = False
    adopted: Adoption | None = None
    topic_id: str = "topic-1"

    def start(self) -> Reconciliation:
        return start(
            self.checkpoint,
            *self.ledger,
            lanes=self.lanes,
            adopt=self.adopt,
            adopted=self.adopted,
            topic_id=self.topic_id,
        )


@dataclass(frozen=True)
class GoesOn:
    """How the run goes on: the lanes that finish the batch in doubt, the lanes that get an anchor, what is adopted."""

    kind: Resume
    to_finish: tuple[int, ...] = ()
    anchored: tuple[int, ...] = ()
    adopt: Adoption | None = None


COMMITTED, IN_DOUBT, FIRST_IN_DOUBT = checkpoint_at(5, 5), checkpoint_at(5, 4), checkpoint_at(0, None)
OTHER_QUERY = held(7, query_id="query-0")

VERDICTS: dict[str, tuple[Case, GoesOn | type[Refused]]] = {
    # The checkpoint has no batch.
    "no ledger topic": (Case(NO_BATCHES, ()), GoesOn(Resume.FRESH)),
    "an empty ledger": (Case(NO_BATCHES, (None, None), lanes=2), GoesOn(Resume.FRESH)),
    "a used ledger": (Case(NO_BATCHES, (held(7),)), ForeignLedger),
    "a used ledger, to be adopted": (
        Case(NO_BATCHES, (held(7),), adopt=True),
        GoesOn(Resume.ADOPTED, adopt=Adoption(QUERY, 7)),
    ),
    "an empty ledger, to be adopted": (Case(NO_BATCHES, (None,), adopt=True), LedgerLost),
    "an unfinished batch, to be adopted": (
        Case(NO_BATCHES, (held(7, 0, 2), held(6, 1, 2)), lanes=2, adopt=True),
        LedgerLost,
    ),
    "another sink topic, to be adopted": (Case(NO_BATCHES, (held(7),), adopt=True, topic_id="topic-2"), SinkRecreated),
    "other lanes, to be adopted": (Case(NO_BATCHES, (held(7),), lanes=2, adopt=True), LanesChanged),
    # Its newest batch is committed.
    "the committed batch": (Case(COMMITTED, (held(5),)), GoesOn(Resume.CLEAN)),
    "the committed batch, with more lanes now": (
        Case(COMMITTED, (held(5),), lanes=2),
        GoesOn(Resume.CLEAN, anchored=(1, 0)),
    ),
    "the committed batch, with fewer lanes now": (
        Case(COMMITTED, (held(5, 0, 2), held(5, 1, 2))),
        GoesOn(Resume.CLEAN, anchored=(1, 0)),
    ),
    "no ledger topic after a committed batch": (Case(COMMITTED, ()), LedgerLost),
    "an empty ledger after a committed batch": (Case(COMMITTED, (None,)), LedgerLost),
    "only the batch before the committed one": (Case(COMMITTED, (held(4),)), LedgerLost),
    "a batch after the committed one": (Case(COMMITTED, (held(6),)), LedgerAhead),
    "the committed batch with other input": (Case(COMMITTED, (held(5, digest="other"),)), OtherInput),
    "a batch of another query": (Case(COMMITTED, (OTHER_QUERY,)), ForeignLedger),
    "the committed batch in another sink topic": (Case(COMMITTED, (held(5),), topic_id="topic-2"), SinkRecreated),
    # Its newest batch is in doubt.
    "nothing of the batch in doubt": (Case(IN_DOUBT, (held(4),)), GoesOn(Resume.IN_DOUBT, to_finish=(0,))),
    "one of two lanes of the batch in doubt": (
        Case(IN_DOUBT, (held(5, 0, 2), held(4, 1, 2)), lanes=2),
        GoesOn(Resume.IN_DOUBT_BEGUN, to_finish=(1,)),
    ),
    "all lanes of the batch in doubt": (
        Case(IN_DOUBT, (held(5, 0, 2), held(5, 1, 2)), lanes=2),
        GoesOn(Resume.IN_DOUBT_BEGUN),
    ),
    "nothing of the batch in doubt, with other lanes now": (
        Case(IN_DOUBT, (held(4),), lanes=2),
        GoesOn(Resume.IN_DOUBT, to_finish=(0, 1), anchored=(1, 0)),
    ),
    "a lane of the batch in doubt, with other lanes now": (
        Case(IN_DOUBT, (held(5, 0, 2), held(4, 1, 2)), lanes=3),
        LanesChanged,
    ),
    "half of a change of lanes before the batch in doubt": (
        Case(IN_DOUBT, (held(4, 0, 1), held(4, 1, 2, kind=ANCHOR)), lanes=2),
        GoesOn(Resume.IN_DOUBT, to_finish=(0, 1), anchored=(0,)),
    ),
    "half of a rebuild at the batch in doubt": (
        Case(IN_DOUBT, (held(4, 0, 2), held(5, 1, 2, kind=ANCHOR)), lanes=2),
        LedgerLost,
    ),
    "a whole rebuild at the batch in doubt": (Case(IN_DOUBT, (held(5, kind=ANCHOR),)), GoesOn(Resume.IN_DOUBT_BEGUN)),
    "no ledger topic for a batch in doubt": (Case(IN_DOUBT, ()), LedgerLost),
    "a gap before the batch in doubt": (Case(IN_DOUBT, (held(3),)), LedgerLost),
    "a batch after the one in doubt": (Case(IN_DOUBT, (held(8),)), LedgerAhead),
    # Its first batch is in doubt.
    "an empty ledger of one lane": (Case(FIRST_IN_DOUBT, (None,)), GoesOn(Resume.IN_DOUBT, to_finish=(0,))),
    "an empty ledger of two lanes": (
        Case(FIRST_IN_DOUBT, (None, None), lanes=2),
        GoesOn(Resume.IN_DOUBT, to_finish=(0, 1), anchored=(1, 0)),
    ),
    "a lane beyond those of the stream now": (Case(FIRST_IN_DOUBT, (None, held(0, 1, 2))), LanesChanged),
    "the adopted ledger": (
        Case(FIRST_IN_DOUBT, (OTHER_QUERY,), adopted=ADOPTED),
        GoesOn(Resume.IN_DOUBT, to_finish=(0,)),
    ),
    "a ledger that was not adopted": (Case(FIRST_IN_DOUBT, (OTHER_QUERY,)), ForeignLedger),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_each_pair_of_checkpoint_and_ledger_has_its_verdict(case: str) -> None:
    found, expected = VERDICTS[case]
    if isinstance(expected, type):
        with pytest.raises(Refused) as refusal:
            found.start()
        assert type(refusal.value) is expected
        return
    verdict = found.start()
    anchored = verdict.anchors.lanes if verdict.anchors else ()
    assert GoesOn(verdict.kind, verdict.to_finish, anchored, verdict.adopt) == expected


@pytest.mark.parametrize("committed", [4, 5])
def test_a_ledger_without_records_is_refused(committed: int) -> None:
    refused = refusal_of(LedgerLost, checkpoint_at(5, committed), None)
    assert "batch 5" in refused.found
    assert "airflow-ckpt ledger rebuild orders" in refused.helps


@pytest.mark.parametrize(("newest", "committed"), [(0, None), (0, 0), (5, 4), (5, 5)])
def test_a_ledger_topic_that_is_gone_is_refused_whatever_batch_the_checkpoint_is_at(
    newest: int, committed: int | None
) -> None:
    refused = refusal_of(LedgerLost, checkpoint_at(newest, committed))
    assert f"batch {newest}" in refused.found


@pytest.mark.parametrize("committed", [4, 5])
def test_another_query_is_refused_at_the_start(committed: int) -> None:
    refused = refusal_of(ForeignLedger, checkpoint_at(5, committed), held(5, query_id="query-0"))
    assert QUERY in refused.found


@pytest.mark.parametrize("committed", [4, 5])
def test_a_sink_made_again_is_refused_at_the_start(committed: int) -> None:
    refusal_of(SinkRecreated, checkpoint_at(5, committed), held(5), topic_id="topic-2")


@pytest.mark.parametrize(
    ("goes_on", "line"),
    [
        (Reconciliation(Resume.UNCHECKED), "at-least-once: nothing to reconcile"),
        (Reconciliation(Resume.FRESH), "fresh start"),
        (
            Reconciliation(Resume.ADOPTED, adopt=ADOPTED),
            "adopting the ledger after batch 7 of query query-0",
        ),
        (Reconciliation(Resume.CLEAN, 5), "clean resume after batch 5"),
        (Reconciliation(Resume.CLEAN, 5, lanes_changed=(1, 3)), "clean resume after batch 5, lanes 1 -> 3"),
        (Reconciliation(Resume.IN_DOUBT, 5, (0, 1)), "batch 5 in doubt: all lanes to finish"),
        (Reconciliation(Resume.IN_DOUBT_BEGUN, 5, (0, 2)), "batch 5 in doubt: lanes 0, 2 to finish"),
        (Reconciliation(Resume.IN_DOUBT_BEGUN, 5), "batch 5 in doubt: every lane is in the sink already"),
    ],
)
def test_the_log_and_the_run_record_have_one_line(goes_on: Reconciliation, line: str) -> None:
    assert goes_on.line == line


@pytest.mark.parametrize(
    ("newest", "committed", "in_doubt"),
    [(None, None, None), (0, None, 0), (0, 0, None), (5, 4, 5), (5, 5, None), (5, 6, None), (None, 6, None)],
)
def test_a_batch_is_in_doubt_if_it_is_planned_and_not_committed(
    newest: int | None, committed: int | None, in_doubt: int | None
) -> None:
    assert checkpoint_at(newest, committed).in_doubt == in_doubt
