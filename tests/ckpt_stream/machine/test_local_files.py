"""Files of a local checkpoint: replaced in one step."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ckpt_stream.machine.local_files import create_local, read_local, replace_local

pytestmark = pytest.mark.unit


def test_a_reader_finds_the_old_text_or_the_new_one_at_every_moment(tmp_path: Path) -> None:
    path = tmp_path / "_ckpt" / "runs" / "run.json"
    texts = ["a" * 50_000, "b" * 60_000]
    replace_local(path, texts[0])
    end = threading.Event()
    seen: set[str | None] = set()
    listed: set[tuple[str, ...]] = set()

    def look() -> None:
        while not end.is_set():
            seen.add(read_local(path))
            listed.add(tuple(p.name for p in path.parent.iterdir() if not p.name.startswith(".")))

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(500):
        replace_local(path, texts[number % 2])
    end.set()
    reader.join()
    assert seen <= set(texts)
    assert listed == {("run.json",)}


def test_the_checksum_file_that_hadoop_wrote_for_the_old_text_is_deleted(tmp_path: Path) -> None:
    (tmp_path / ".stop.json.crc").write_text("of the old text")
    replace_local(tmp_path / "stop.json", "new")
    assert [p.name for p in tmp_path.iterdir()] == ["stop.json"]


def test_a_missing_file_reads_as_none(tmp_path: Path) -> None:
    assert read_local(tmp_path / "nothing") is None


def test_of_many_threads_that_create_a_file_one_succeeds_and_the_file_is_whole(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def create(text: str) -> list[bool]:
        done = []
        for n in range(20):
            together.wait(20)
            done.append(create_local(tmp_path / "claims" / f"{n}.json", text * 10_000))
        return done

    with ThreadPoolExecutor(8) as threads:
        rounds = list(zip(*threads.map(create, "abcdefgh"), strict=True))
    for n, done in enumerate(rounds):
        assert done.count(True) == 1
        assert read_local(tmp_path / "claims" / f"{n}.json") == "abcdefgh"[done.index(True)] * 10_000
    assert len(list((tmp_path / "claims").iterdir())) == 20


def test_a_file_system_without_links_creates_a_file_once_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    assert [create_local(tmp_path / "a", text) for text in ("first", "second")] == [True, False]
    assert read_local(tmp_path / "a") == "first"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
