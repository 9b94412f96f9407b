from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.jars import download_progress, stack_jars
from tests.airflow_ckpt.local.jars import fake_ivy
from tests.support.waiting import wait_for

pytestmark = pytest.mark.unit

WANTED = ["org.example:alpha:1.0"]


class FakeIvy:
    """Controls the fake Ivy through files in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.delivers("alpha-1.0.jar", "beta-2.1.jar")

    def delivers(self, *names: str) -> None:
        (self.folder / "delivers").write_text(" ".join(names))

    def set(self, behaviour: str) -> None:
        (self.folder / behaviour).touch()

    def unset(self, behaviour: str) -> None:
        (self.folder / behaviour).unlink()

    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def ivy(tmp_path, monkeypatch):
    """A cache folder of its own and a fake Ivy."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S {shlex.quote(fake_ivy.__file__)} "$@"\n')
    java.chmod(0o755)
    (tmp_path / "fake-ivy").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("FAKE_IVY", str(tmp_path / "fake-ivy"))
    monkeypatch.setenv("AIRFLOW_CKPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("AIRFLOW_CKPT_IVY_SETTINGS", raising=False)
    return FakeIvy(tmp_path / "fake-ivy")


def names(folder: Path) -> set[str]:
    return {jar.name for jar in folder.glob("*.jar")}


def test_the_second_run_takes_the_jars_from_the_cache(ivy, tmp_path):
    first = stack_jars.resolve(WANTED, name="set")
    second = stack_jars.resolve(WANTED, name="set")
    assert first == second == tmp_path / "cache" / "jars" / "set"
    assert names(first) == {"alpha-1.0.jar", "beta-2.1.jar"}
    assert len(ivy.calls()) == 1


def test_the_manifest_has_size_and_hash_of_every_jar(ivy):
    folder = stack_jars.resolve(WANTED, name="set")
    files = json.loads((folder / "manifest.json").read_text())["files"]
    assert files.keys() == names(folder)
    assert all(entry["size"] > 0 and len(entry["sha256"]) == 64 for entry in files.values())


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda folder: (folder / "beta-2.1.jar").unlink(), id="a jar is missing"),
        pytest.param(lambda folder: (folder / "beta-2.1.jar").write_bytes(b"short"), id="a jar is short"),
        pytest.param(lambda folder: (folder / "manifest.json").unlink(), id="no manifest"),
        pytest.param(lambda folder: (folder / "manifest.json").write_text("{"), id="half a manifest"),
    ],
)
def test_a_damaged_folder_is_resolved_again(ivy, damage):
    folder = stack_jars.resolve(WANTED, name="set")
    damage(folder)
    assert names(stack_jars.resolve(WANTED, name="set")) == {"alpha-1.0.jar", "beta-2.1.jar"}
    assert len(ivy.calls()) == 2


def test_other_coordinates_under_the_same_name_are_resolved_again(ivy):
    stack_jars.resolve(WANTED, name="set")
    stack_jars.resolve(["org.example:alpha:1.1"], name="set")
    assert len(ivy.calls()) == 2


def test_jars_that_the_other_folder_has_in_any_version_are_left_out(ivy, tmp_path):
    present = tmp_path / "pyspark-jars"
    present.mkdir()
    for name in ("alpha-0.9.jar", "log4j-1.2-api-2.24.3.jar", "zstd-jni-1.5.6-9.jar"):
        (present / name).touch()
    ivy.delivers("alpha-1.0.jar", "alpha-core-1.0.jar", "zstd-jni-1.5.6-10.jar", "kafka-clients-3.9.0.jar")
    folder = stack_jars.resolve(WANTED, name="set", skip_dir=present)
    assert names(folder) == {"alpha-core-1.0.jar", "kafka-clients-3.9.0.jar"}


def test_an_interrupted_download_leaves_nothing_to_trust_and_is_repaired(ivy, tmp_path):
    ivy.set("interrupted")
    with pytest.raises(StackError):
        stack_jars.resolve(WANTED, name="set")
    assert not (tmp_path / "cache" / "jars" / "set").exists()
    ivy.unset("interrupted")
    lines: list[str] = []
    assert names(stack_jars.resolve(WANTED, name="set", announce=lines.append)) == {"alpha-1.0.jar", "beta-2.1.jar"}
    assert any("interrupted download" in line for line in lines)
    assert len(ivy.calls()) == 3


def test_damaged_jars_are_not_taken_over(ivy, tmp_path, monkeypatch):
    monkeypatch.setattr("zipfile.is_zipfile", lambda jar: jar.name != "beta-2.1.jar")
    with pytest.raises(StackError, match=r"beta-2\.1\.jar.*damaged"):
        stack_jars.resolve(WANTED, name="set")
    assert not (tmp_path / "cache" / "jars" / "set").exists()


def test_without_network_one_line_says_what_was_fetched_and_what_to_type(ivy, tmp_path):
    ivy.set("unreachable")
    with pytest.raises(StackError) as error:
        stack_jars.resolve(WANTED, name="set")
    message = str(error.value)
    for part in ("org.example:alpha:1.0", "repo.example", "java.net.Connect"):
        assert part in message
    assert "AIRFLOW_CKPT_IVY_SETTINGS" in message
    assert "\n" not in message
    ivy.unset("unreachable")
    assert names(stack_jars.resolve(WANTED, name="set"))


def test_little_disk_is_noticed_before_anything_is_fetched(ivy, monkeypatch):
    monkeypatch.setattr(stack_jars, "LEAST_FREE_BYTES", 10**18)
    with pytest.raises(StackError, match=r"org\.example:alpha:1\.0: \d+ MB.*AIRFLOW_CKPT_CACHE") as error:
        stack_jars.resolve(WANTED, name="set")
    assert error.value.kind == "no_room"
    assert "\n" not in str(error.value)
    assert ivy.calls() == []


def test_a_cache_folder_that_cannot_be_written_is_named(ivy, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("AIRFLOW_CKPT_CACHE", str(tmp_path / "file"))
    with pytest.raises(StackError, match="AIRFLOW_CKPT_CACHE"):
        stack_jars.resolve(WANTED, name="set")


def resolving_elsewhere() -> subprocess.Popen[bytes]:
    """Another process that resolves the same jars."""
    code = "import sys; from airflow_ckpt.local.jars import stack_jars; stack_jars.resolve(sys.argv[1:], name='set')"
    return subprocess.Popen([sys.executable, "-c", code, *WANTED])


def test_of_two_processes_at_once_the_second_waits_and_uses_the_jars_of_the_first(ivy):
    ivy.set("wait")
    other = resolving_elsewhere()
    wait_for(lambda: ivy.calls() or None, "the other process to start Ivy", 30)
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        ivy.unset("wait")

    assert names(stack_jars.resolve(WANTED, name="set", announce=on_line)) == {"alpha-1.0.jar", "beta-2.1.jar"}
    assert other.wait(30) == 0
    assert ["set" in line and "waiting" in line for line in lines] == [True]
    assert len(ivy.calls()) == 1


def test_the_ivy_of_a_killed_process_is_waited_for(ivy):
    ivy.set("wait")
    other = resolving_elsewhere()
    wait_for(lambda: ivy.calls() or None, "the other process to start Ivy", 30)
    os.kill(other.pid, signal.SIGKILL)
    other.wait(30)
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        if "waiting" in line:
            ivy.unset("wait")

    assert names(stack_jars.resolve(WANTED, name="set", announce=on_line)) == {"alpha-1.0.jar", "beta-2.1.jar"}
    assert "set" in lines[0]
    assert "waiting" in lines[0]
    assert len(ivy.calls()) == 2


def test_the_settings_of_a_company_mirror_are_handed_to_ivy(ivy, tmp_path, monkeypatch):
    settings = tmp_path / "mirror.xml"
    settings.write_text("<ivysettings/>")
    monkeypatch.setenv("AIRFLOW_CKPT_IVY_SETTINGS", str(settings))
    stack_jars.resolve(WANTED, name="set")
    assert f"-settings {settings} " in ivy.calls()[0]


def test_settings_that_do_not_exist_are_an_error(ivy, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CKPT_IVY_SETTINGS", "/no/such/file.xml")
    with pytest.raises(StackError, match=r"AIRFLOW_CKPT_IVY_SETTINGS is /no/such/file\.xml"):
        stack_jars.resolve(WANTED, name="set")


def test_java_gets_the_proxy_of_the_environment(ivy, monkeypatch):
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "localhost,.example.org")
    stack_jars.resolve(WANTED, name="set")
    call = ivy.calls()[0]
    assert "-Dhttps.proxyHost=proxy.example -Dhttps.proxyPort=3128" in call
    assert "-Dhttp.nonProxyHosts=localhost|*.example.org" in call


def test_a_proxy_in_java_tool_options_is_left_alone(ivy, monkeypatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=other.example")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    stack_jars.resolve(WANTED, name="set")
    assert "proxy.example" not in ivy.calls()[0]


def test_pyspark_is_found_without_being_imported():
    code = (
        "import sys; from airflow_ckpt.local.jars import stack_jars; print(stack_jars.pyspark_home());"
        "assert 'pyspark' not in sys.modules"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (Path(found.stdout.strip()) / "jars").is_dir()


def test_without_pyspark_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(StackError, match=r"pip install 'airflow-ckpt\[local\]'"):
        stack_jars.pyspark_home()


def test_pyspark_client_alone_counts_as_no_pyspark(monkeypatch, tmp_path):
    package = tmp_path / "pyspark" / "__init__.py"
    package.parent.mkdir()
    package.touch()
    spec = importlib.util.spec_from_file_location("pyspark", package)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(StackError, match=r"pip install 'airflow-ckpt\[local\]'"):
        stack_jars.pyspark_home()


def test_unequal_versions_of_pyspark_and_its_client_are_refused(monkeypatch):
    versions = {"pyspark": "4.0.0", "pyspark-client": "4.0.1"}
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    with pytest.raises(StackError, match=r"4\.0\.0.*4\.0\.1.*pip install --force-reinstall") as error:
        stack_jars.spark_kafka_jars()
    assert error.value.kind == "unequal_versions"


def test_the_progress_counts_jars_and_megabytes_and_the_part_of_a_jar_that_is_there(tmp_path):
    assert download_progress.progress(tmp_path) == "finding out which jars are needed"
    (tmp_path / "done.jar").write_bytes(bytes(1_500_000))
    (tmp_path / "coming.jar.part").write_bytes(bytes(500_000))
    (tmp_path / "done.jar.sha1").write_bytes(bytes(40))
    assert download_progress.progress(tmp_path) == "1 jars, 2.0 MB"
