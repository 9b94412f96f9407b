"""Where a checkpoint stands while its stream goes on: never damage, and always a moment that there really was."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_stream.errors import CheckpointLogError
from ckpt_stream.protocol.checkpoint.checkpoint_log import RESTORE, input_digest
from ckpt_stream.protocol.checkpoint.checkpoint_reader import read_checkpoint
from ckpt_stream.protocol.checkpoint.intact_checkpoint import read_intact_checkpoint
from ckpt_stream.protocol.checkpoint.newest_batches import list_logs
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
    ends = list_logs(files)
    assert ends.damage == ()
    assert (ends.newest, ends.committed) in files.states


@quick
@given(STEPS, BEGUN)
def test_the_start_of_a_run_reads_a_running_stream(steps: list[int], begun: int) -> None:
    files = MovingCheckpoint(steps, begun=begun)
    end = read_intact_checkpoint(files)
    assert (end.newest, end.committed) in files.states
    assert end.digests == {n: input_digest(offsets(n)) for n in (end.newest, end.committed) if n is not None}


@quick
@given(STEPS, BEGUN)
def test_airflow_reads_a_running_stream(steps: list[int], begun: int) -> None:
    files = MovingCheckpoint(steps, begun=begun)
    found = read_checkpoint(files)
    assert found.findings == ()
    assert (found.newest, found.committed) in files.states
    assert (found.in_doubt is None) == (found.newest == found.committed)


@pytest.mark.parametrize("read", [read_intact_checkpoint, read_checkpoint])
def test_an_entry_that_is_thrown_away_between_its_listing_and_its_read_is_no_damage(read: object) -> None:
    files = MovingCheckpoint([0, 0, 9], begun=50, keep=2)
    assert callable(read)
    found = read(files)
    assert (found.newest, found.committed) in files.states
    assert getattr(found, "findings", ()) == ()


@pytest.mark.parametrize("read", [read_intact_checkpoint, read_checkpoint])
def test_a_stream_that_throws_batches_away_faster_than_they_are_listed_is_read_once_it_is_slower(read: object) -> None:
    files = MovingCheckpoint([7, 7, 7, 7, 7, 7], begun=50, keep=2)
    assert callable(read)
    found = read(files)
    assert (found.newest, found.committed) in files.states
    assert getattr(found, "findings", ()) == ()


@pytest.mark.parametrize(
    ("removed", "kind", "missing", "names"),
    [
        (["offsets/49"], "commit_without_offsets", "offsets/49", ("commits/49", "48")),
        (
            ["commits/49", "commits/48"],
            "missing_commits",
            "commits/48",
            ("49", "47"),
        ),
        ([f"offsets/{n}" for n in range(50)], "commit_without_offsets", "offsets/49", ("commits/49", "none")),
        ([f"commits/{n}" for n in range(50)], "missing_commits", "commits/48", ("49", "none")),
    ],
)
def test_what_is_missing_for_good_is_named(removed: list[str], kind: str, missing: str, names: tuple[str, ...]) -> None:
    files = MovingCheckpoint([], begun=50)
    for name in removed:
        del files.texts[name]
    assert list_logs(files).damage[0].file == missing
    with pytest.raises(CheckpointLogError) as refusal:
        read_intact_checkpoint(files)
    assert (refusal.value.kind, refusal.value.file) == (kind, missing)
    assert all(name in refusal.value.found for name in names)
    assert refusal.value.helps == RESTORE


class Binary(MovingCheckpoint):
    """The newest entry of the offset log is no text."""

    def read(self, name: str) -> str | None:
        if name == "offsets/49":
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        return super().read(name)


def test_a_file_that_is_no_text_is_refused_by_name() -> None:
    with pytest.raises(CheckpointLogError) as refusal:
        read_intact_checkpoint(Binary([], begun=50))
    assert (refusal.value.kind, refusal.value.file) == ("foreign", "offsets/49")


def test_missing_commits_are_named_although_a_file_is_no_text() -> None:
    files = Binary([], begun=50)
    for name in ("commits/49", "commits/48"):
        del files.texts[name]
    with pytest.raises(CheckpointLogError) as refusal:
        read_intact_checkpoint(files)
    assert (refusal.value.kind, refusal.value.file) == ("missing_commits", "commits/48")


def test_a_batch_that_is_listed_and_cannot_be_read_is_no_batch_with_another_input() -> None:
    class Vanishing(MovingCheckpoint):
        def read(self, name: str) -> str | None:
            return None if name == "offsets/49" else super().read(name)

    with pytest.raises(CheckpointLogError) as refusal:
        read_intact_checkpoint(Vanishing([], begun=50))
    assert (refusal.value.kind, refusal.value.file) == ("missing", "offsets/49")
