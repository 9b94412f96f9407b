"""Where a batch begins and ends in the source; what is empty was torn, and is not taken for absent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ckpt_stream.errors import CheckpointLogError
from ckpt_stream.protocol.checkpoint.batch_offsets import end_offsets, pinned_offsets, start_offsets
from tests.ckpt_stream.protocol.checkpoint.test_checkpoint_reader import Folder, checkpoint, ends

pytestmark = pytest.mark.unit


def test_a_batch_begins_where_the_one_before_it_ends() -> None:
    files = checkpoint(3, 3)
    assert start_offsets(files, 2) == end_offsets(files, 1) == ends(20)


def test_the_first_batch_begins_where_the_source_pinned_it() -> None:
    files = Folder({"sources/0/0": '\0v1\n{"orders":{"0":3}}'})
    assert start_offsets(files, 0) == pinned_offsets(files) == {"orders": {"0": 3}}


def test_what_is_not_there_is_unknown() -> None:
    files = Folder()
    assert (pinned_offsets(files), end_offsets(files, 4), start_offsets(files, 0)) == (None, None, {})


@pytest.mark.parametrize(
    ("read", "file"),
    [
        (pinned_offsets, "sources/0/0"),
        (lambda files: start_offsets(files, 0), "sources/0/0"),
        (lambda files: end_offsets(files, 4), "offsets/4"),
        (lambda files: start_offsets(files, 5), "offsets/4"),
    ],
)
def test_an_empty_file_is_refused(read: Callable[[Folder], Any], file: str) -> None:
    with pytest.raises(CheckpointLogError) as refusal:
        read(Folder({file: ""}))
    assert (refusal.value.kind, refusal.value.file) == ("empty", file)
