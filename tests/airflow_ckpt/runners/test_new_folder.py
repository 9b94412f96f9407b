"""The folder of a launch: private from its creation, gone where the launch failed, and never another launch's."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_ckpt.exceptions import NotPrivate
from airflow_ckpt.runners import private_files
from airflow_ckpt.runners.base import Launch
from airflow_ckpt.runners.private_files import new_folder, read_private, write_private

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


def test_a_launch_that_is_discarded_leaves_no_secret_wherever_it_is(tmp_path: Path) -> None:
    folder, secret = tmp_path / "t1", tmp_path / "secrets.conf"
    folder.mkdir()
    (folder / "stream.json").write_text("{}")
    secret.write_text("x")
    launch = Launch(("spark-submit",), {}, folder, (str(secret),))
    launch.discard()
    assert list(tmp_path.iterdir()) == []
    launch.discard()


def test_a_file_of_another_user_is_not_trusted_even_in_a_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_folder(tmp_path, "t1") as folder:
        write_private(folder / "launch.json", "{}")
    assert read_private(folder, "launch.json") == "{}"
    own, stat_of = os.geteuid(), os.fstat

    def of_another_user(descriptor: int) -> Any:
        found = stat_of(descriptor)
        uid = own if stat.S_ISDIR(found.st_mode) else own + 1
        return SimpleNamespace(st_uid=uid, st_mode=found.st_mode)

    monkeypatch.setattr(private_files, "os", SimpleNamespace(**{**vars(os), "fstat": of_another_user}))
    with pytest.raises(NotPrivate):
        read_private(folder, "launch.json")
