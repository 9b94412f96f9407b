from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from airflow_ckpt.local.airflow.stack_connections import connections, connections_file, digest

pytestmark = pytest.mark.unit

WANTED = connections({"bootstrap.servers": "127.0.0.1:9092", "sasl.password": "hunter2"}, "local[2]")


def test_the_digest_changes_with_the_connections_and_does_not_show_them() -> None:
    other = connections({"bootstrap.servers": "127.0.0.1:9095", "sasl.password": "hunter2"}, "local[2]")

    assert digest(WANTED) != digest(other)
    assert "hunter2" not in digest(WANTED)


def test_only_the_owner_can_read_the_file_for_the_import_and_it_is_deleted_afterwards(tmp_path: Path) -> None:
    with connections_file(tmp_path, WANTED) as file:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert json.loads(file.read_text()) == WANTED

    assert list(tmp_path.iterdir()) == []


def test_the_file_is_deleted_when_the_import_is_interrupted(tmp_path: Path) -> None:
    def interrupted() -> None:
        with connections_file(tmp_path, WANTED):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert list(tmp_path.iterdir()) == []
