"""The list of the records that made a run fail: which the next run passes over, and how long each is kept."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.driver import poison_list
from ckpt_stream.driver.poison_list import records_to_pass, remember_poison
from ckpt_stream.protocol.run_files.record_files import POISON
from ckpt_stream.protocol.run_files.run_record import Failure

pytestmark = pytest.mark.unit

COMMITTED = {"orders": {"0": 30}}


def fails_at(offset: int, *, once: bool = True, partition: int = 0) -> Failure:
    poison: dict[str, Any] = {"topic": "orders", "partition": partition, "offset": offset, "once": once, "reason": "r"}
    return Failure("PoisonRecord", "r", 3, poison)


def remember(files: FsspecFiles, *offsets: int) -> None:
    for offset in offsets:
        remember_poison(files, fails_at(offset), "run-1", COMMITTED)


def passed(files: FsspecFiles, committed: dict[str, dict[str, int]] = COMMITTED) -> list[int]:
    return [poison["offset"] for poison in records_to_pass(files, committed)]


def test_a_record_that_ended_a_run_is_passed_over_with_the_run_and_the_batch_that_it_ended(files: FsspecFiles) -> None:
    remember(files, 31)
    (poison,) = records_to_pass(files, COMMITTED)
    assert (poison["offset"], poison["run"], poison["batch"]) == (31, "run-1", 3)


@pytest.mark.parametrize("failure", [Failure("RuntimeError", "x"), fails_at(31, once=False)])
def test_any_other_failure_is_not_remembered(files: FsspecFiles, failure: Failure) -> None:
    remember_poison(files, failure, "run-1", COMMITTED)
    assert files.read(POISON) is None


def test_only_records_that_are_still_to_be_read_are_passed_over(files: FsspecFiles) -> None:
    remember(files, 29, 30, 31)
    assert passed(files) == [30, 31]
    assert passed(files, {}) == [29, 30, 31], "without a position any of them may be read"
    assert passed(files, {"orders": {"1": 99}}) == [29, 30, 31]


def test_a_full_list_forgets_old_records_and_none_that_may_still_be_read(
    files: FsspecFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poison_list, "KEEP_POISON", 2)
    remember(files, 40, 10, 11, 12)
    assert passed(files, {}) == [40, 11, 12]
