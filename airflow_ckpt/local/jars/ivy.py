"""Runs the Ivy that pyspark ships: Maven coordinates in, a folder of jars out."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies
from xml.sax.saxutils import quoteattr

from airflow_ckpt.exceptions import IvyFailed, StackError
from airflow_ckpt.local.jars import jar_folder

# Ivy's default settings would also use the user's ~/.ivy2, where a pom without its jar makes it fail. With these timeouts, a
# network that drops packets fails in seconds, and a download without progress fails in a minute.
_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <timeout-constraints>
    <timeout-constraint name="patience" connectionTimeout="10000" readTimeout="60000"/>
  </timeout-constraints>
  <resolvers><ibiblio name="central" m2compatible="true" timeoutConstraint="patience"/></resolvers>
</ivysettings>
"""
_FILE_NAME = "[artifact]-[revision](-[classifier]).[ext]"
_UNKNOWN_HOST = re.compile(r"Host (?P<host>\S+) (?P<why>not found)")
_ACCESS_ERROR = re.compile(r"Server access error at url \w+://(?P<host>[^/\s]+)\S* \((?P<why>.*)\)")


@dataclass(frozen=True)
class Ivy:
    """One Ivy with a separate cache, so that no other program can lock it or leave it half filled."""

    java: Path
    jar: Path
    cache: Path
    log: Path

    def retrieve(
        self, coordinates: Sequence[str], into: Path, *, keep_open: Sequence[int], while_running: Callable[[], None]
    ) -> None:
        """Download the coordinates and their dependencies. Ivy keeps the descriptors `keep_open` open until it ends."""
        self.cache.mkdir(parents=True, exist_ok=True)
        module = self.cache / "ivy.xml"
        module.write_text(_module(coordinates))
        argv = [str(self.java), *_proxy_options(), "-cp", str(self.jar), "org.apache.ivy.Main"]
        argv += ["-settings", str(self._settings()), "-cache", str(self.cache), "-ivy", str(module)]
        argv += ["-retrieve", f"{into}/{_FILE_NAME}"]
        with self.log.open("wb") as log, _running(argv, log.fileno(), keep_open) as process:
            while process.poll() is None:
                while_running()
                try:
                    process.wait(timeout=0.2)
                except subprocess.TimeoutExpired:
                    continue
        if process.returncode != 0:
            raise IvyFailed(self._reason())
        damage = jar_folder.damage(into)
        if damage:
            raise IvyFailed(f"{damage} (does a proxy change files?). Run the same command again")

    def _reason(self) -> str:
        said = self.log.read_text(errors="replace")
        found = _UNKNOWN_HOST.search(said) or _ACCESS_ERROR.search(said)
        if found:
            return (
                f"cannot reach {found['host']} ({found['why']}). Connect to the network and run the same command again "
                "(HTTPS_PROXY is honoured; AIRFLOW_CKPT_IVY_SETTINGS=<ivysettings.xml> names a mirror)"
            )
        return f"the repository does not have all of it (`tail -50 {self.log}` shows what)"

    def _settings(self) -> Path:
        chosen = os.environ.get("AIRFLOW_CKPT_IVY_SETTINGS")
        if chosen:
            if not Path(chosen).is_file():
                raise StackError(
                    f"AIRFLOW_CKPT_IVY_SETTINGS is {chosen}, and there is no such file: correct or unset it"
                )
            return Path(chosen).absolute()
        settings = self.cache / "ivysettings.xml"
        settings.write_text(_SETTINGS)
        return settings


def _module(coordinates: Sequence[str]) -> str:
    """An ivy.xml that depends on the coordinates; `default->default` leaves out sources, javadoc and optional jars."""
    lines = []
    for coordinate in coordinates:
        group, artifact, version = coordinate.split(":")
        named = f"org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)}"
        lines.append(f'<dependency {named} conf="default->default"/>')
    return (
        '<ivy-module version="2.0"><info organisation="airflow-ckpt" module="jars"/>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


@contextmanager
def _running(argv: Sequence[str], output: int, keep_open: Sequence[int]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, pass_fds=keep_open
    )
    try:
        yield process
    finally:
        # If this process was interrupted, Ivy may still be running here: it must not continue in the background.
        if process.poll() is None:
            process.kill()
            process.wait()


def _proxy_options() -> list[str]:
    """HTTPS_PROXY, HTTP_PROXY and NO_PROXY as Java's properties. Java ignores these variables, but reads JAVA_TOOL_OPTIONS."""
    if "proxyHost" in os.environ.get("JAVA_TOOL_OPTIONS", ""):
        return []
    options: list[str] = []
    proxies = getproxies()
    for scheme, address in proxies.items():
        proxy = urlsplit(address if "//" in address else f"//{address}")
        if scheme in ("http", "https") and proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    direct = [host.strip() for host in proxies.get("no", "").split(",") if host.strip()]
    if options and direct:
        options.append("-Dhttp.nonProxyHosts=" + "|".join(f"*{host}" if host[0] == "." else host for host in direct))
    return options
