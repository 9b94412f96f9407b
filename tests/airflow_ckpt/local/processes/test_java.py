from __future__ import annotations

from pathlib import Path

import pytest

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.processes.java import find_java

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def no_java(monkeypatch, tmp_path):
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


def fake_java(home: Path, says: str, exit_code: int = 0) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'Picked up JAVA_TOOL_OPTIONS: -Da=b' >&2\necho '{says}' >&2\nexit {exit_code}\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize("version", ['openjdk version "17.0.15" 2025-04-15', 'java version "21" 2023-09-19'])
def test_a_new_enough_java_on_the_path_is_found(monkeypatch, tmp_path, version):
    java = fake_java(tmp_path / "jdk", version)
    monkeypatch.setenv("PATH", str(java.parent))
    assert find_java() == java


def test_java_home_comes_before_the_path(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", 'openjdk version "21.0.1"').parent))
    chosen = fake_java(tmp_path / "home", 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == chosen


def one_line_of_help(error: pytest.ExceptionInfo[StackError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    assert "openjdk-17-jre-headless" in message
    assert "JAVA_HOME" in message
    return message


def test_without_java_the_message_says_what_to_install():
    with pytest.raises(StackError) as error:
        find_java()
    assert error.value.kind == "none"
    assert "Java 17" in one_line_of_help(error)


@pytest.mark.parametrize(("says", "major"), [('openjdk version "11.0.2"', 11), ('java version "1.8.0_292"', 8)])
def test_a_java_that_is_too_old_is_named_with_its_version(monkeypatch, tmp_path, says, major):
    java = fake_java(tmp_path / "jdk", says)
    monkeypatch.setenv("PATH", str(java.parent))
    with pytest.raises(StackError) as error:
        find_java()
    assert error.value.kind == "too_old"
    for part in (str(java), f"Java {major}", "Java 17"):
        assert part in one_line_of_help(error)


def test_a_java_home_without_java_is_an_error_even_if_the_path_has_one(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", 'openjdk version "21.0.1"').parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StackError) as error:
        find_java()
    assert error.value.kind == "none_in_java_home"
    assert str(tmp_path) in one_line_of_help(error)


def test_something_that_only_calls_itself_java_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "jdk", "Unable to locate a Java Runtime", 1).parent))
    with pytest.raises(StackError) as error:
        find_java()
    assert error.value.kind == "not_a_java"
    assert str(tmp_path / "jdk") in one_line_of_help(error)
