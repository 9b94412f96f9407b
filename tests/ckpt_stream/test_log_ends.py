"""Where a checkpoint stands while its stream goes on: never damage, and always a moment that there really was."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ckpt.checkpoint.reader import read_checkpoint
from ckpt_stream.checkpoint_log import CheckpointLogError
from ckpt_stream.ledger import digest
from ckpt_stream.log_ends import log_ends
from ckpt_stream.start_of_run import checkpoint_end
from tests.ckpt_stream.moving import MovingCheckpoint, offsets

pytestmark = pytest.mark.unit

#: How far the stream goes between a call and the next one: halves of batches.
STEPS = st.lists(st.integers(0, 25), max_size=20)
BEGUN = st.integers(0, 300)

quick = settings(max_examples=300, deadline=None, derandomize=True, database=None)


@quick
@given(STEPS, BEGUN)
def test_a_stream_that_goes_on_between_any_two_calls_is_read_at_a_moment_that_there_was(
    steps: list[int], begun: int
) -> None:
    files = MovingCheckpoint(steps, begun=begun)
    ends = log_ends(files)
    assert ends.damage is None
    assert (ends.newest, ends.committed) in files.states


@quick
@given(STEPS, BEGUN)
def test_the_start_of_a_run_reads_a_running_stream(steps: list[int], begun: int) -> None:
    files = MovingCheckpoint(steps, begun=begun)
    end = checkpoint_end(files)
    assert (end.newest, end.committed) in files.states
    assert end.digests == {n: digest(offsets(n)) for n in (end.newest, end.committed) if n is not None}


@quick
@given(STEPS, BEGUN)
def test_airflow_reads_a_running_stream(steps: list[int], begun: int) -> None:
    files = MovingCheckpoint(steps, begun=begun)
    found = read_checkpoint(files)
    assert found.findings == ()
    assert (found.newest, found.committed) in files.states
    assert (found.in_doubt is None) == (found.newest == found.committed)


@pytest.mark.parametrize("read", [checkpoint_end, read_checkpoint])
def test_a_stream_that_throws_batches_away_faster_than_they_are_listed_is_read_once_it_is_slower(read: object) -> None:
    files = MovingCheckpoint([7, 7, 7, 7, 7, 7], begun=50, keep=2)
    assert callable(read)
    found = read(files)
    assert (found.newest, found.committed) in files.states
    assert getattr(found, "findings", ()) == ()


@pytest.mark.parametrize(
    ("removed", "missing", "words"),
    [
        (["offsets/49"], "offsets/49", ("commits/49 is there", "offsets/49 is not", "newest is 48")),
        (
            ["commits/49", "commits/48"],
            "commits/48",
            ("newest batch is 49", "committed one is 47", "at most one batch"),
        ),
        ([f"offsets/{n}" for n in range(50)], "offsets/49", ("commits/49 is there", "newest is none")),
        ([f"commits/{n}" for n in range(50)], "commits/48", ("newest batch is 49", "committed one is none")),
    ],
)
def test_what_is_missing_for_good_is_named(removed: list[str], missing: str, words: tuple[str, ...]) -> None:
    files = MovingCheckpoint([], begun=50)
    for name in removed:
        del files.texts[name]
    damage = log_ends(files).damage
    assert damage is not None
    assert damage.missing == missing
    with pytest.raises(CheckpointLogError) as refusal:
        checkpoint_end(files)
    assert all(word in str(refusal.value) for word in (*words, "Restore the checkpoint"))


def test_a_batch_that_is_listed_and_cannot_be_read_is_no_batch_with_another_input() -> None:
    class Vanishing(MovingCheckpoint):
        def read(self, name: str) -> str | None:
            return None if name == "offsets/49" else super().read(name)

    with pytest.raises(CheckpointLogError, match="offsets/49 was listed and is not there"):
        checkpoint_end(Vanishing([], begun=50))
