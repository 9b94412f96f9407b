"""The folder of a launch: private from its creation, gone where the launch failed, and never another launch's."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from airflow_ckpt.exceptions import NotPrivate
from airflow_ckpt.runners.private_files import new_folder

pytestmark = pytest.mark.unit


def test_the_folder_is_private_before_anything_is_in_it(tmp_path: Path) -> None:
    with new_folder(tmp_path, "t1") as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    assert folder == tmp_path / "t1"
    assert folder.is_dir()


@pytest.mark.parametrize("error", [OSError("no space"), KeyboardInterrupt()])
def test_a_launch_that_fails_leaves_no_folder(tmp_path: Path, error: BaseException) -> None:
    def launch() -> None:
        with new_folder(tmp_path, "t1") as folder:
            (folder / "secrets.conf").write_text("x")
            raise error

    with pytest.raises(type(error)):
        launch()

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_neither_taken_nor_deleted(tmp_path: Path) -> None:
    (tmp_path / "t1").mkdir()
    with pytest.raises(FileExistsError), new_folder(tmp_path, "t1"):
        pytest.fail("it was taken")

    assert (tmp_path / "t1").is_dir()


def test_a_token_that_is_a_path_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(NotPrivate), new_folder(tmp_path / "work", "../t1"):
        pytest.fail("it was made")
