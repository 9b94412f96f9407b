"""A worker without cached importers of archives reads no archive again at the start of a task, and still imports from them."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from typing import Any
from zipimport import zipimporter

import pytest

from ckpt_stream.driver import lane
from ckpt_stream.driver.archive_cache import drop_archive_importers


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "modules.zip"
    with zipfile.ZipFile(path, "w") as made:
        for name in ("archived/__init__.py", "archived/first.py", "archived/second.py"):
            made.writestr(name, f"name = {name!r}\n")
    monkeypatch.syspath_prepend(str(path))
    for module in ("archived", "archived.first", "archived.second"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return path


def cached(archive: Path) -> list[str]:
    finders = sys.path_importer_cache.items()
    return [place for place, finder in finders if isinstance(finder, zipimporter) and place.startswith(str(archive))]


def test_no_importer_of_an_archive_is_cached_and_the_next_import_finds_it(archive: Path) -> None:
    importlib.import_module("archived.first")
    assert cached(archive), "Python caches an importer of the archive, and would read it again"
    drop_archive_importers()
    assert cached(archive) == []
    importlib.invalidate_caches()
    assert importlib.import_module("archived.second").name == "archived/second.py"


def test_a_lane_leaves_no_importer_of_an_archive_cached(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_lane(*_: Any) -> dict[str, Any]:
        importlib.import_module("archived.first")
        return {"lane": 0}

    class Context:
        @staticmethod
        def get() -> Any:
            return type("Task", (), {"partitionId": staticmethod(lambda: 0)})

    monkeypatch.setattr(lane, "write_lane", write_lane)
    monkeypatch.setattr("pyspark.TaskContext", Context)
    assert len(list(lane.LaneWriter(None)([]))) == 1  # type: ignore[arg-type]
    assert cached(archive) == []
