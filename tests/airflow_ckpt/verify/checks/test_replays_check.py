"""What the verdict says of batches that replayed differently."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.verify.checks.replays_check import add_replays
from airflow_ckpt.verify.report import as_html
from airflow_ckpt.verify.verdict import CLEAN, UNKNOWN, Verdict
from ckpt_stream.errors import RunRecordError
from ckpt_stream.protocol.run_files.record_files import REPLAYS, list_to_json

pytestmark = pytest.mark.unit


def replay(batch: int, *, accepted: bool = False, query: str = "q2") -> dict[str, Any]:
    return {"query_id": query, "batch": batch, "lanes": [0, 2], "run": "r", "time": "t", "accepted": accepted}


@pytest.fixture
def files(tmp_path: Path) -> FsspecFiles:
    files = FsspecFiles(str(tmp_path))
    files.write("metadata", '{"id":"q2"}')
    return files


BATCHES = {("q1", 5), ("q2", 3), ("q2", 4)}


def test_one_that_was_in_the_sink_whole_is_a_note_and_the_verdict_stays_clean(files: FsspecFiles) -> None:
    files.write(REPLAYS, list_to_json([replay(3), replay(9), replay(3, query="q1"), replay(5, query="q1")]))
    verdict = Verdict("s", "sink")
    add_replays(verdict, files, BATCHES)
    assert [(n.kind, n.query, n.batch) for n in verdict.notes] == [
        ("replay_differed", "q2", 3),
        ("replay_differed", "q1", 5),
    ], "the others are not in the range"
    assert verdict.verdict == CLEAN
    page = as_html(verdict.as_dict())
    assert "<h2>Notes</h2>" in page
    assert all(escape(note.what) in page for note in verdict.notes)


def test_one_that_a_user_accepted_is_unknown_and_no_violation(files: FsspecFiles) -> None:
    files.write(REPLAYS, list_to_json([replay(4, accepted=True)]))
    verdict = Verdict("s", "sink")
    add_replays(verdict, files, BATCHES)
    assert verdict.verdict == UNKNOWN
    assert [(f.kind, f.batch) for f in verdict.findings] == [("replay_accepted", 4)]


def test_a_recomputation_covers_the_checkpoints_query_up_to_its_last_batch(files: FsspecFiles) -> None:
    files.write(REPLAYS, list_to_json([replay(3), replay(4), replay(2, query="q1")]))
    verdict = Verdict("s", "recompute", last_batch=3)
    add_replays(verdict, files)
    assert [(n.query, n.batch) for n in verdict.notes] == [("q2", 3)]


def test_a_list_that_cannot_be_read_is_not_taken_for_an_empty_one(files: FsspecFiles) -> None:
    files.write(REPLAYS, "{")
    with pytest.raises(RunRecordError):
        add_replays(Verdict("s", "sink"), files, BATCHES)
