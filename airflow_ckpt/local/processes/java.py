"""Finds the Java for Kafka and Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from airflow_ckpt.exceptions import StackError

# The oldest Java with which both Spark 4 and Kafka 4 start.
OLDEST_JAVA = 17

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def find_java(minimum: int = OLDEST_JAVA) -> Path:
    """The `java` of JAVA_HOME, otherwise `java` on the PATH; raises StackError if it is missing or older than `minimum`."""
    java, origin = _locate(minimum)
    version = _major_version(java)
    if version is None:
        raise StackError(f"{java} ({origin}) does not run as a Java: {_remedy(minimum)}", kind="not_a_java")
    if version < minimum:
        raise StackError(
            f"{java} ({origin}) is Java {version}, but Java {minimum} or newer is needed: {_remedy(minimum)}",
            kind="too_old",
        )
    return java


def _locate(minimum: int) -> tuple[Path, str]:
    home = os.environ.get("JAVA_HOME")
    if home:
        # No fallback to the PATH: Spark uses only JAVA_HOME, and Kafka should use the same Java.
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise StackError(
                f"JAVA_HOME is {home}, which has no bin/java: {_remedy(minimum)}", kind="none_in_java_home"
            )
        return java, "from JAVA_HOME"
    on_path = shutil.which("java")
    if on_path is None:
        raise StackError(f"Java {minimum} or newer is needed and there is none: {_remedy(minimum)}", kind="none")
    return Path(on_path), "from PATH"


def _major_version(java: Path) -> int | None:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found.group(1)) if found and answer.returncode == 0 else None


def _remedy(minimum: int) -> str:
    return (
        f"install one (`apt-get install openjdk-{minimum}-jre-headless`, `brew install openjdk@{minimum}`) "
        f"and set JAVA_HOME to its folder"
    )
