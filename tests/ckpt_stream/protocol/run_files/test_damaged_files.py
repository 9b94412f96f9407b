"""An error about a damaged file beside the checkpoint names the file, and what is lost with it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.supervision.intent_files import read_intent
from airflow_ckpt.verify.checks.replays_check import replays
from ckpt_stream.errors import Damaged, Unreadable
from ckpt_stream.protocol.run_files import restart_history, unfinished_files
from ckpt_stream.protocol.run_files.adoption import read_adoption
from ckpt_stream.protocol.run_files.damaged_files import COST_OF_LOSS
from ckpt_stream.protocol.run_files.record_files import ACCEPTED, ADOPTION, INTENTS, REPLAYS, RESTARTS
from ckpt_stream.protocol.run_files.replays import accepted_batch

pytestmark = pytest.mark.unit

READERS: dict[str, Callable[[FsspecFiles], object]] = {
    f"{INTENTS}/00000003.json": read_intent,
    "_ckpt/intent.json": read_intent,
    f"{RESTARTS}/00000003.json": restart_history.read_newest,
    "_ckpt/restarts.json": restart_history.read_newest,
    ADOPTION: read_adoption,
    REPLAYS: lambda files: list(replays(files, ())),
}


@pytest.mark.parametrize("file", READERS)
@pytest.mark.parametrize(
    "text", ['{"format": 99}', '{"format": 1}', '{"format": 1, "entries": [{}]}', "[]", '{"format": 1, "batch": "x"}']
)
def test_the_file_and_the_cost_of_moving_it_away_are_named(files: FsspecFiles, file: str, text: str) -> None:
    if file.endswith(("restarts.json", f"{RESTARTS}/00000003.json")) and "entries" in text:
        text = '{"format": 1, "entries": [5]}'
    files.write(file, text)
    with pytest.raises(Damaged) as told:
        READERS[file](files)
    assert told.value.file == file
    assert (COST_OF_LOSS.get(file) or COST_OF_LOSS[file.rpartition("/")[0]]) in str(told.value)


@pytest.mark.parametrize("document", [{}, {"query_id": "q"}, {"query_id": "q", "batch": None}])
def test_an_accepted_replay_without_its_fields_is_named(files: FsspecFiles, document: dict[str, object]) -> None:
    files.write(ACCEPTED, json.dumps({"format": 1, **document}))
    with pytest.raises(Damaged) as damaged:
        accepted_batch(files)
    assert damaged.value.file == ACCEPTED


def test_a_file_that_may_be_the_middle_of_a_write_is_still_looked_at_again(
    files: FsspecFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished_files, "PATIENCE_SECONDS", 0)
    files.write(f"{INTENTS}/00000003.json", "{")
    with pytest.raises(Unreadable) as told:
        read_intent(files)
    assert told.value.file == f"{INTENTS}/00000003.json"
    assert COST_OF_LOSS[INTENTS] in str(told.value)
