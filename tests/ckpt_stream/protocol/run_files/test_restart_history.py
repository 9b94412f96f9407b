"""The restart history: no entry is lost, although others are added at the same moment."""

from __future__ import annotations

import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.protocol.run_files import restart_history
from ckpt_stream.protocol.run_files.record_files import INTENTS, RESTARTS, list_to_json
from ckpt_stream.protocol.run_files.restart_history import KEEP_FILES, KEEP_RESTARTS, add_entry, read_newest

pytestmark = pytest.mark.unit


def test_without_a_file_the_history_is_empty(files: FsspecFiles) -> None:
    assert read_newest(files) == (0, [])


def test_entries_come_back_in_order_and_few_files_are_kept(files: FsspecFiles) -> None:
    entries = 2 * KEEP_FILES
    assert [add_entry(files, {"token": f"t{n}"}) for n in range(entries)] == list(range(1, entries + 1))
    number, history = read_newest(files)
    assert (number, [e["token"] for e in history]) == (entries, [f"t{n}" for n in range(entries)])
    assert len(files.names(RESTARTS)) == KEEP_FILES


def test_a_full_history_is_of_a_size_that_is_quickly_read(files: FsspecFiles) -> None:
    entry = {
        "kind": "restart",
        "token": "t" * 12,
        "by": "dag.task run",
        "after_run": "r" * 40,
        "reason": "why " * 10_000,
    }
    whole = [{**entry, "reason": "w" * restart_history.LONGEST_REASON} for _ in range(KEEP_RESTARTS)]
    files.write(f"{RESTARTS}/00000001.json", list_to_json(whole))
    add_entry(files, dict(entry))
    text = files.read(f"{RESTARTS}/00000002.json") or ""
    assert len(text) < 600_000
    assert len(read_newest(files)[1]) == KEEP_RESTARTS


def test_an_entry_that_the_history_rules_out_is_not_added(files: FsspecFiles) -> None:
    add_entry(files, {"token": "t1"})
    assert add_entry(files, {"token": "t2"}, unless=lambda known: any(e["token"] == "t1" for e in known)) is None
    assert read_newest(files) == (1, [{"token": "t1"}])


def test_no_entry_of_many_threads_is_lost(files: FsspecFiles) -> None:
    """Two that read the history at once, and write it back, would lose one: a restart that was not counted."""
    together = threading.Barrier(6)

    def add_ten(who: int) -> None:
        for n in range(10):
            together.wait(20)
            add_entry(files, {"token": f"{who}-{n}"})

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(add_ten, range(6)))
    number, history = read_newest(files)
    assert number == 60
    assert sorted(e["token"] for e in history) == sorted(f"{who}-{n}" for who in range(6) for n in range(10))


def answer_each(folder: str, who: str, together: threading.Barrier, rounds: int) -> None:
    """Answer the same question as others in every round, as two who resume do."""
    files = FsspecFiles(folder)
    for n in range(rounds):
        together.wait(60)
        add_entry(files, {"round": n, "by": who}, unless=lambda known, n=n: any(e["round"] == n for e in known))


def test_of_several_processes_one_answers_each_time(tmp_path: Path) -> None:
    context, rounds = multiprocessing.get_context("spawn"), 50
    together = context.Barrier(3)
    several = [
        context.Process(target=answer_each, args=(str(tmp_path), f"p{n}", together, rounds), daemon=True)
        for n in range(3)
    ]
    for one in several:
        one.start()
    for one in several:
        one.join(120)
    assert [one.exitcode for one in several] == [0, 0, 0]
    number, history = read_newest(FsspecFiles(str(tmp_path)))
    assert (number, [e["round"] for e in history]) == (rounds, list(range(rounds)))


class Unconditional(FsspecFiles):
    """A storage that ignores the condition: another one creates the same file a moment later, and replaces it."""

    def create(self, name: str, text: str) -> bool:
        self.write(name, text)
        self.write(name, list_to_json([{"by": "them"}]))
        return True


def test_where_a_storage_ignores_the_condition_the_writer_that_was_overwritten_notices(tmp_path: Path) -> None:
    files = Unconditional(str(tmp_path))
    assert add_entry(files, {"by": "us"}, unless=lambda known: bool(known)) is None
    assert read_newest(files) == (1, [{"by": "them"}])


def test_an_entry_that_a_lost_answer_hid_is_not_added_twice(tmp_path: Path) -> None:
    """The client of an object store tries again, and then finds what its first try has created."""

    class SecondTry(FsspecFiles):
        def create(self, name: str, text: str) -> bool:
            super().create(name, text)
            return super().create(name, text)

    files = SecondTry(str(tmp_path))
    assert add_entry(files, {"token": "t1"}, unless=lambda known: bool(known)) == 1
    assert read_newest(files) == (1, [{"token": "t1"}])


def test_a_number_that_was_deleted_since_it_was_listed_is_not_taken_for_free(
    files: FsspecFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that has listed the folder long ago would create a file below the newest one, which no reader opens."""
    add_entry(files, {"token": "t1"})
    seen = read_newest(files)
    others = [f"t{n}" for n in range(2, 2 * KEEP_FILES)]
    for token in others:
        add_entry(files, {"token": token})
    looks = iter([seen])
    real = restart_history.read_newest
    monkeypatch.setattr(restart_history, "read_newest", lambda f: next(looks, None) or real(f))
    assert add_entry(files, {"token": "late"}) == len(others) + 2
    assert [e["token"] for e in real(files)[1]] == ["t1", *others, "late"]


def test_the_history_of_the_version_before_is_carried_over_by_the_next_entry(files: FsspecFiles) -> None:
    files.write("_ckpt/restarts.json", list_to_json([{"token": "t1"}, {"token": "t2"}]))
    assert read_newest(files) == (0, [{"token": "t1"}, {"token": "t2"}])
    assert add_entry(files, {"token": "t3"}) == 1
    assert read_newest(files) == (1, [{"token": "t1"}, {"token": "t2"}, {"token": "t3"}])


def test_a_history_that_was_moved_away_goes_on_above_the_intents(files: FsspecFiles) -> None:
    """Under a lower number the intent of the next driver would not be the newest: that driver would not be seen."""
    for number in (6, 7):
        files.write(f"{INTENTS}/{number:08d}.json", "{}")
    assert add_entry(files, {"token": "t8"}) == 8
    assert add_entry(files, {"token": "t9"}) == 9
    assert [e["token"] for e in read_newest(files)[1]] == ["t8", "t9"]


def test_a_storage_whose_listing_stays_old_is_not_asked_without_end(tmp_path: Path, slept: list[float]) -> None:
    tries = 0

    class Stale(FsspecFiles):
        def names(self, folder: str) -> list[str]:
            return []

        def create(self, name: str, text: str) -> bool:
            nonlocal tries
            tries += 1
            assert tries < 1000, "asked for ever"
            return False

    with pytest.raises(restart_history.NotAdded) as told:
        add_entry(Stale(str(tmp_path)), {"token": "t1"})
    assert (told.value.storage, told.value.file) == (str(tmp_path), f"{RESTARTS}/00000001.json")
    assert tries == len(slept) + 1
    assert slept[-1] > slept[0]


def test_a_slow_storage_leaves_a_writer_as_many_tries(tmp_path: Path, slept: list[float]) -> None:
    """Each of several writers that add an entry at the same moment succeeds, whatever a request takes."""
    others = iter(range(8))

    class SlowAndBusy(FsspecFiles):
        def create(self, name: str, text: str) -> bool:
            time.sleep(restart_history.PATIENCE_SECONDS)
            if (other := next(others, None)) is not None:
                return not super().create(name, list_to_json([{"token": f"other-{other}"}]))
            return super().create(name, text)

    assert add_entry(SlowAndBusy(str(tmp_path)), {"token": "mine"}) == 9
