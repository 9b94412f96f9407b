"""A run takes up a request to stop, while users withdraw it or write another one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_ckpt.checkpoint.files import FsspecFiles
from ckpt_stream import stop_request
from ckpt_stream.heart import Heart
from ckpt_stream.run_record import STOP, RunRecord, path_of

pytestmark = pytest.mark.unit


class Meanwhile(FsspecFiles):
    """Storage on which another program acts behind the next write of a file."""

    def then(self, act: Callable[[], None]) -> None:
        self._act = act

    def write(self, name: str, text: str) -> None:
        super().write(name, text)
        if act := self.__dict__.pop("_act", None):
            act()


@pytest.fixture
def storage(files: FsspecFiles) -> Meanwhile:
    return Meanwhile(files.root)


@pytest.fixture
def heart(storage: Meanwhile) -> Heart:
    return Heart(storage, RunRecord("20260101T000000.000000-t", "orders", "t"))


def is_noted(files: FsspecFiles, heart: Heart) -> bool:
    """Whether others can see that this run stops."""
    return RunRecord.from_json(files.read(path_of(heart.record.run)) or "").stopping


def test_a_run_that_stops_says_so_in_its_record(storage: Meanwhile, heart: Heart) -> None:
    storage.write(STOP, "one")
    assert stop_request.take_up(storage, heart, "one")
    assert is_noted(storage, heart)


def test_a_request_that_is_withdrawn_while_the_run_takes_it_up_is_not_obeyed(storage: Meanwhile, heart: Heart) -> None:
    storage.write(STOP, "one")
    storage.then(lambda: storage.remove(STOP))
    assert not stop_request.take_up(storage, heart, "one")
    assert not is_noted(storage, heart)


def test_a_request_of_no_use_is_deleted_and_a_new_one_in_its_place_is_not(storage: Meanwhile) -> None:
    storage.write(STOP, "obeyed")
    assert stop_request.remove(storage, "obeyed")
    storage.write(STOP, "new")
    assert not stop_request.remove(storage, "obeyed")
    assert storage.read(STOP) == "new"
