from __future__ import annotations

import stat
from pathlib import Path

import pytest

from airflow_ckpt.local.private_file import replace_private

pytestmark = pytest.mark.unit


def test_a_replaced_file_has_the_new_text_and_is_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "secret"
    replace_private(file, "a long first text")
    file.chmod(0o644)

    replace_private(file, "second")

    assert file.read_text() == "second"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_what_a_crash_left_behind_does_not_stop_the_next_write(tmp_path: Path) -> None:
    (tmp_path / "secret.new").write_text("half")

    replace_private(tmp_path / "secret", "whole")

    assert (tmp_path / "secret").read_text() == "whole"
