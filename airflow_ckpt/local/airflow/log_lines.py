"""Reads the output of Airflow's processes."""

from __future__ import annotations

import re
from pathlib import Path

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def last_line(text: str) -> str:
    """The last line that is not empty, without colours."""
    lines = [line for line in _COLOUR.sub("", text).splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it printed nothing"


def last_line_of(log: Path) -> str:
    """The last line of a log and the path of the log, for an error message."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return f"{last_line(text)} (whole log: {log})"
