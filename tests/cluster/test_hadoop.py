"""The HDFS and the YARN that other tests use: daemons that can be killed and brought back, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.support.hdfs import HdfsUnderTest
from tests.support.leftovers import processes_of
from tests.support.yarn import YarnUnderTest

# The first run downloads Hadoop, which takes minutes.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Callable[[Any], Any]]:
    """Starts one that belongs to this test only; afterwards nothing of it runs."""
    started: list[Any] = []

    def start(kind: Any) -> Any:
        under_test = kind(tmp_path)
        started.append(under_test)
        under_test.start()
        return under_test

    yield start
    for under_test in started:
        under_test.stop()
    assert processes_of(tmp_path) == []


def test_hdfs_keeps_its_files_when_its_daemons_die(alone: Callable[[Any], Any]) -> None:
    hdfs: HdfsUnderTest = alone(HdfsUnderTest)
    files = fsspec.filesystem("webhdfs", **hdfs.webhdfs)
    files.pipe_file("/a/b", b"content")
    for daemon in (hdfs.datanode, hdfs.namenode):
        daemon.kill()
        assert not daemon.is_up
        hdfs.start()
        assert files.cat_file("/a/b") == b"content"


def test_yarn_has_a_live_node_again_after_its_resource_manager_died(alone: Callable[[Any], Any]) -> None:
    yarn: YarnUnderTest = alone(YarnUnderTest)
    born = yarn.get("info")["clusterInfo"]["startedOn"]
    yarn.restart_rm()
    assert yarn.get("info")["clusterInfo"]["startedOn"] > born
    assert [node["state"] for node in yarn.get("nodes")["nodes"]["node"]] == ["RUNNING"]
    assert (yarn.conf_dir / "yarn-site.xml").exists()
