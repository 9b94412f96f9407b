"""A real HDFS on this machine; a test may stop or kill its daemons."""

from __future__ import annotations

import getpass
import subprocess
from pathlib import Path
from typing import Any

import fsspec

from airflow_ckpt.local.processes.ports import free_ports
from tests.support.hadoop_daemon import (
    HOST,
    Daemon,
    answer_of,
    common_settings,
    environment,
    java_command,
    write_settings,
)


class HdfsUnderTest:
    """An HDFS of one NameNode and one DataNode in a folder."""

    def __init__(self, folder: Path) -> None:
        self.conf_dir = folder / "conf"
        self._rpc, self._http, *others = free_ports([None] * 5)
        self._folder = folder
        self._write_settings(others)
        self.namenode = Daemon("org.apache.hadoop.hdfs.server.namenode.NameNode", self.conf_dir, folder)
        self.datanode = Daemon("org.apache.hadoop.hdfs.server.datanode.DataNode", self.conf_dir, folder)

    @property
    def uri(self) -> str:
        """As Spark names it."""
        return f"hdfs://{HOST}:{self._rpc}"

    @property
    def webhdfs(self) -> dict[str, Any]:
        """What fsspec's `webhdfs` needs to see the same files."""
        return {"host": HOST, "port": self._http, "user": getpass.getuser()}

    def start(self) -> None:
        """Bring up what does not run, and wait until files can be read and written."""
        if not (self._folder / "name").exists():
            argv = [
                *java_command(self.conf_dir, "org.apache.hadoop.hdfs.server.namenode.NameNode"),
                "-format",
                "-nonInteractive",
            ]
            done = subprocess.run(
                argv, capture_output=True, text=True, check=False, cwd=self._folder, env=environment()
            )
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        self.namenode.start()
        self.datanode.start()
        self.namenode.wait_until(self._answers, "HDFS to be writable")

    def stop(self) -> None:
        self.datanode.stop()
        self.namenode.stop()

    def _answers(self) -> bool:
        web = f"http://{HOST}:{self._http}"
        listing = answer_of(f"{web}/webhdfs/v1/", op="LISTSTATUS", **{"user.name": getpass.getuser()})
        beans = answer_of(f"{web}/jmx", qry="Hadoop:service=NameNode,name=FSNamesystemState").get("beans") or [{}]
        if not listing or beans[0].get("NumLiveDataNodes") != 1 or beans[0].get("FSState") != "Operational":
            return False
        return self._is_writable()

    def _is_writable(self) -> bool:
        """The NameNode goes on counting a DataNode that was killed: only a file that went through it proves it."""
        files = fsspec.filesystem("webhdfs", **self.webhdfs, skip_instance_cache=True)
        try:
            files.pipe_file("/probe", b"written")
            return bool(files.cat_file("/probe") == b"written")
        except (OSError, RuntimeError):
            return False

    def _write_settings(self, datanode_ports: list[int]) -> None:
        data, http, ipc = datanode_ports
        write_settings(self.conf_dir / "core-site.xml", {"fs.defaultFS": self.uri, **common_settings(self._folder)})
        write_settings(
            self.conf_dir / "hdfs-site.xml",
            {
                "dfs.namenode.rpc-address": f"{HOST}:{self._rpc}",
                "dfs.namenode.http-address": f"{HOST}:{self._http}",
                "dfs.namenode.name.dir": str(self._folder / "name"),
                "dfs.namenode.safemode.min.datanodes": "1",
                "dfs.namenode.safemode.extension": "0",
                "dfs.datanode.address": f"{HOST}:{data}",
                "dfs.datanode.http.address": f"{HOST}:{http}",
                "dfs.datanode.ipc.address": f"{HOST}:{ipc}",
                # The machine's own name, to which WebHDFS would redirect, may lead elsewhere.
                "dfs.datanode.hostname": HOST,
                "dfs.datanode.data.dir": str(self._folder / "data"),
                "dfs.replication": "1",
                "dfs.permissions.superusergroup": "root",
            },
        )
        for app in ("hdfs", "datanode"):
            (self.conf_dir / "webapps" / app).mkdir(parents=True)
