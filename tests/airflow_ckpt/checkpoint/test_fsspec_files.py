"""Files beside the checkpoint: replaced in one step, also while other processes write them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles

pytestmark = pytest.mark.unit


def test_threads_of_one_process_may_replace_the_same_file_at_once(tmp_path: Path) -> None:
    """A triggerer looks at one stream for many tasks."""
    files, texts = FsspecFiles(str(tmp_path)), [str(n) * 5000 for n in range(8)]
    together = threading.Barrier(len(texts))

    def write(text: str) -> None:
        for _ in range(20):
            together.wait(10)
            files.write("_ckpt/intent.json", text)

    with ThreadPoolExecutor(len(texts)) as threads:
        list(threads.map(write, texts))
    assert files.read("_ckpt/intent.json") in texts
    assert files.names("_ckpt") == ["intent.json"]


def test_what_is_not_there_is_none_and_no_error(tmp_path: Path) -> None:
    files = FsspecFiles(str(tmp_path))
    assert (files.read("x"), files.names("y"), files.sizes("z"), files.exists("x")) == (None, [], {}, False)
