"""A file that is written at this moment is looked at again; one that stays unreadable is neither there nor absent."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable

import pytest

from ckpt_stream.errors import RunRecordError, Unreadable
from ckpt_stream.protocol.run_files.run_record import RunRecord
from ckpt_stream.protocol.run_files.unfinished_files import PATIENCE_SECONDS, read_when_whole

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("slept")]

NAME = "_ckpt/runs/r.json"
WHOLE = RunRecord("r", "orders").to_json()


class Storage:
    """Shows one text after the other, the last one for ever; an exception is raised."""

    def __init__(self, *texts: str | Exception | None, listed: bool = True) -> None:
        self.texts, self.listed = list(texts), listed

    def exists(self, name: str) -> bool:
        return self.listed

    def read(self, name: str) -> str | None:
        text = self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]
        if isinstance(text, Exception):
            raise text
        return text

    def names(self, folder: str) -> list[str]:
        assert folder == "_ckpt/runs"
        return ["r.json"] if self.listed else []


def test_a_whole_file_is_read_at_once(slept: list[float]) -> None:
    assert read_when_whole(Storage(WHOLE), NAME, RunRecord.from_json) == RunRecord("r", "orders")
    assert slept == []


@pytest.mark.parametrize("torn", [None, "", WHOLE[:50], UnicodeDecodeError("utf-8", b"", 0, 1, "cut")])
def test_a_file_that_is_empty_cut_off_or_away_for_a_moment_is_read_when_it_is_whole(
    torn: str | Exception | None,
) -> None:
    assert read_when_whole(Storage(torn, torn, WHOLE), NAME, RunRecord.from_json) == RunRecord("r", "orders")


@pytest.mark.parametrize("torn", [None, "", WHOLE[:50]])
def test_a_listed_file_that_stays_unreadable_is_an_error_that_another_look_may_cure(
    torn: str | None, slept: list[float]
) -> None:
    with pytest.raises(Unreadable) as error:
        read_when_whole(Storage(torn), NAME, RunRecord.from_json)
    assert error.value.restart_may_help
    assert error.value.file == NAME
    assert sum(slept) == pytest.approx(PATIENCE_SECONDS, abs=0.1)
    assert str(copy.copy(error.value)) == str(error.value)


@pytest.mark.parametrize("seconds", [1.0, 2 * PATIENCE_SECONDS])
def test_however_slow_the_storage_is_a_torn_file_is_looked_at_as_often(seconds: float, slept: list[float]) -> None:
    class Slow(Storage):
        def read(self, name: str) -> str | None:
            time.sleep(seconds)
            return super().read(name)

    assert read_when_whole(Slow(*[""] * 8, WHOLE), NAME, RunRecord.from_json) == RunRecord("r", "orders")
    slept.clear()
    with pytest.raises(Unreadable):
        read_when_whole(Slow(""), NAME, RunRecord.from_json)
    assert sum(pause for pause in slept if pause != seconds) == pytest.approx(PATIENCE_SECONDS, abs=0.1)


def test_a_file_that_was_deleted_since_it_was_listed_is_none() -> None:
    assert read_when_whole(Storage(None, listed=False), NAME, RunRecord.from_json) is None


@pytest.mark.parametrize("other", ['{"format": 99}', '{"format": 1}'])
def test_a_whole_file_of_another_kind_is_refused_at_once(other: str, slept: list[float]) -> None:
    with pytest.raises(RunRecordError) as error:
        read_when_whole(Storage(other), NAME, RunRecord.from_json)
    assert not isinstance(error.value, Unreadable)
    assert slept == []


def test_a_storage_that_does_not_answer_is_its_own_error() -> None:
    read: Callable[[], object] = lambda: read_when_whole(Storage(PermissionError("no")), NAME, RunRecord.from_json)  # noqa: E731
    with pytest.raises(PermissionError):
        read()
