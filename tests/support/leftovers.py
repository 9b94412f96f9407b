"""Finds processes that a stack left behind, by another sign than the code under test uses."""

from __future__ import annotations

from pathlib import Path

import psutil


def processes_of(folder: Path) -> list[str]:
    """Every living process that mentions the folder or works in it, except this one and its ancestors.

    The working folder is the sign that also Airflow's renamed processes keep, which have lost their environment.
    """
    me = psutil.Process()
    spared = {me.pid, *(parent.pid for parent in me.parents())}
    return [
        f"{process.pid}: {' '.join(process.cmdline())[:120]}"
        for process in psutil.process_iter()
        if process.pid not in spared and _mentions(process, str(folder))
    ]


def _mentions(process: psutil.Process, folder: str) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return any(folder in text for text in (*process.cmdline(), *process.environ().values(), process.cwd()))
    except psutil.Error:
        return False
