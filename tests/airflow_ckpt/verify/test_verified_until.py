"""How far a stream was verified: what moves the position on, what does not, and which query it belongs to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.verify.verdict import Finding, Verdict
from airflow_ckpt.verify.verified_until import FILE, not_yet_verified, record_verdict
from ckpt_stream.protocol.ledger.ledger_batches import Batch
from ckpt_stream.protocol.verification.consistent_cut import BatchRange

pytestmark = pytest.mark.unit

FORGOTTEN = Finding("ledger_history", "The ledger reaches back to batch 40.", "verify from there", violation=False)
DELETED = Finding("sink_truncated", "Retention has deleted records.", "more often", violation=False)
COMPACTED = Finding("sink_compacted", "It was compacted.", "nothing", violation=False)
ACCEPTED = Finding("replay_accepted", "A user let it go on.", "compare", violation=False)
DOUBLED = Finding("duplicate", "One is there twice.", "look")


@pytest.fixture
def files(tmp_path: Path) -> FsspecFiles:
    """A checkpoint of the query q1."""
    files = FsspecFiles(str(tmp_path))
    files.write("metadata", '{"id":"q1"}')
    return files


def verified_until(files: FsspecFiles, depth: str) -> int | None:
    return not_yet_verified(files, depth).after


def verdict(
    batch: int | None,
    *findings: Finding,
    depth: str = "sink",
    query: str = "q1",
    since: int = 0,
    since_query: str | None = None,
    queries: dict[str, tuple[int, int]] | None = None,
) -> dict[str, Any]:
    """`queries`: what the ledger holds of each, in their order; by default it holds all of the one."""
    found = Verdict("orders", depth, findings=list(findings), since=since)
    found.since_query = since_query or (query if since else None)
    found.queries = [
        {"query_id": q, "first": first, "last": last}
        for q, (first, last) in (queries or {query: (0, batch or 0)}).items()
    ]
    found.reached = None if batch is None else {"batch": batch, "query_id": query}
    document: dict[str, Any] = json.loads(json.dumps(found.as_dict()))
    return document


def test_a_stream_that_was_never_verified_has_no_position(files: FsspecFiles) -> None:
    assert verified_until(files, "sink") is None


def test_a_clean_verdict_moves_it_and_never_back(files: FsspecFiles) -> None:
    for batch, until in ((7, 7), (9, 9), (3, 9)):
        record_verdict(files, verdict(batch))
        assert verified_until(files, "sink") == until


@pytest.mark.parametrize(("since", "until"), [(0, 9), (5, 9), (6, 9), (7, 5)])
def test_a_range_that_leaves_batches_out_does_not_move_it(files: FsspecFiles, since: int, until: int) -> None:
    """Else no verification would ever read the batches between."""
    record_verdict(files, verdict(5))
    record_verdict(files, verdict(9, since=since))
    assert verified_until(files, "sink") == until


def test_the_first_range_begins_at_the_first_batch(files: FsspecFiles) -> None:
    record_verdict(files, verdict(9, since=3))
    assert verified_until(files, "sink") is None


def test_a_look_at_the_ledger_alone_is_no_look_at_the_sink(files: FsspecFiles) -> None:
    record_verdict(files, verdict(5))
    record_verdict(files, verdict(9, depth="ledger"))
    assert (verified_until(files, "sink"), verified_until(files, "ledger")) == (5, 9)
    record_verdict(files, verdict(12))
    assert (verified_until(files, "sink"), verified_until(files, "ledger")) == (12, 12)
    # It goes on where the sink was left.
    record_verdict(files, verdict(15, depth="ledger", since=13))
    assert (verified_until(files, "sink"), verified_until(files, "ledger")) == (12, 15)


def test_a_stream_that_was_started_over_is_verified_from_its_start(files: FsspecFiles) -> None:
    """The position names the query, which the new ledger does not know: else the stream would be clean, unread, until it has as
    many batches as the old one."""
    record_verdict(files, verdict(500))
    files.write("metadata", '{"id":"q2"}')
    wanted = not_yet_verified(files, "sink")
    assert wanted == BatchRange(500, query="q1")
    assert wanted.slice_of([Batch("q2", number, {}) for number in range(4)]) == (0, 4)
    record_verdict(files, verdict(3, query="q2", since=501, since_query="q1"))
    assert not_yet_verified(files, "sink") == BatchRange(3, query="q2")


TWO = {"q1": (0, 60), "q2": (0, 3)}


def test_a_query_that_took_over_goes_on_behind_the_one_before(files: FsspecFiles) -> None:
    record_verdict(files, verdict(50))
    files.write("metadata", '{"id":"q2"}')
    wanted = not_yet_verified(files, "sink")
    ledger = [Batch(q, n, {}, shared=True) for q, (first, last) in TWO.items() for n in range(first, last + 1)]
    assert wanted.slice_of(ledger) == (51, 65)
    record_verdict(files, verdict(3, query="q2", since=51, since_query="q1", queries=TWO))
    assert not_yet_verified(files, "sink") == BatchRange(3, query="q2")
    record_verdict(files, verdict(60, query="q1", queries=TWO))
    assert not_yet_verified(files, "sink") == BatchRange(3, query="q2"), "it never goes back"


@pytest.mark.parametrize(("verified", "since", "moves"), [(60, 0, True), (59, 0, False), (60, 1, False)])
def test_what_the_query_before_left_is_not_passed_over(
    files: FsspecFiles, verified: int, since: int, moves: bool
) -> None:
    record_verdict(files, verdict(verified))
    record_verdict(files, verdict(3, query="q2", since=since, since_query="q2", queries=TWO))
    assert (not_yet_verified(files, "sink").query == "q2") is moves


def test_a_whole_query_between_is_not_passed_over(files: FsspecFiles) -> None:
    record_verdict(files, verdict(60))
    three = {"q1": (0, 60), "between": (0, 9), "q2": (0, 3)}
    record_verdict(files, verdict(3, query="q2", since=0, since_query="q2", queries=three))
    assert not_yet_verified(files, "sink") == BatchRange(60, query="q1")


@pytest.mark.parametrize("finding", [COMPACTED, DOUBLED])
def test_what_is_not_clean_does_not_move_it(files: FsspecFiles, finding: Finding) -> None:
    record_verdict(files, verdict(5))
    record_verdict(files, verdict(9, finding))
    record_verdict(files, verdict(9, finding, FORGOTTEN))
    assert verified_until(files, "sink") == 5


@pytest.mark.parametrize("gone", [(FORGOTTEN,), (DELETED,), (FORGOTTEN, DELETED), (ACCEPTED,)])
def test_what_is_gone_is_reported_once(
    files: FsspecFiles, caplog: pytest.LogCaptureFixture, gone: tuple[Finding, ...]
) -> None:
    """Airflow was down for long: no verification can read what lies between, and a task that fails for ever helps no user."""
    record_verdict(files, verdict(5))
    record_verdict(files, verdict(50, *gone))
    assert verified_until(files, "sink") == 50
    assert [r.levelname for r in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"sink": 5}'])
def test_a_file_that_cannot_be_read_counts_as_never_verified(files: FsspecFiles, text: str) -> None:
    files.write(FILE, text)
    assert verified_until(files, "sink") is None
    record_verdict(files, verdict(5))
    assert verified_until(files, "sink") == 5


def test_a_violation_is_not_forgotten_with_the_ledger(files: FsspecFiles) -> None:
    record_verdict(files, verdict(5))
    record_verdict(files, verdict(9, DOUBLED))
    record_verdict(files, verdict(50, FORGOTTEN))
    assert verified_until(files, "sink") == 5
    # A user has looked at it and verifies from a batch behind it.
    record_verdict(files, verdict(60, since=20))
    assert verified_until(files, "sink") == 60
    record_verdict(files, verdict(90, FORGOTTEN, since=61))
    assert verified_until(files, "sink") == 90


def test_a_violation_of_a_stream_that_was_never_clean_is_remembered_too(files: FsspecFiles) -> None:
    record_verdict(files, verdict(9, DOUBLED))
    assert verified_until(files, "sink") is None
    record_verdict(files, verdict(50, FORGOTTEN))
    assert verified_until(files, "sink") is None


def test_a_recomputation_does_not_move_the_position(files: FsspecFiles) -> None:
    record_verdict(files, verdict(9, depth="recompute"))
    assert not files.exists(FILE)


def test_nothing_reached_moves_nothing(files: FsspecFiles) -> None:
    record_verdict(files, verdict(5))
    record_verdict(files, verdict(None))
    assert verified_until(files, "sink") == 5


def test_after_a_violation_the_position_is_where_a_clean_verdict_ends(files: FsspecFiles) -> None:
    """The records that were clean before may have been altered since: what comes after is verified again."""
    record_verdict(files, verdict(9))
    record_verdict(files, verdict(12, DOUBLED))
    record_verdict(files, verdict(3))
    assert verified_until(files, "sink") == 3
