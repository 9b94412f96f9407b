"""Finds and ends the processes of one Airflow, in three ways, because no single way finds all of them.

Airflow's own processes, orphans included, are found by their session; some of them rename themselves, which erases their
environment. Processes that a task started in a new session, such as a Spark driver, are found by a variable of their environment.
The children of all these processes belong to this Airflow too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.airflow.home_files import OWNER_VARIABLE
from airflow_ckpt.local.processes.process_id import ProcessId, may_lead_a_session, session_of

COMPONENTS = ("scheduler", "triggerer", "dag-processor", "api-server")

# The API server renames itself to "airflow api_server -- host:... port:...".
_COMMAND = re.compile(r"\bairflow (scheduler|triggerer|dag-processor|api[-_]server)\b")


def owned(home: Path, sessions: Collection[ProcessId]) -> list[psutil.Process]:
    """Every running process of the Airflow in `home`, which has these sessions; without the caller itself."""
    me = psutil.Process()
    spared = {me.pid, *(parent.pid for parent in me.parents())}
    session_ids = {session.pid for session in sessions if may_lead_a_session(session)}
    children: dict[int, list[psutil.Process]] = defaultdict(list)
    found: list[psutil.Process] = []
    for process, parent in _living():
        children[parent].append(process)
        if session_of(process) in session_ids or _owner_of(process) == str(home):
            found.append(process)
    # The list grows during the loop, so children of children are found too.
    for process in found:
        found += [child for child in children[process.pid] if child not in found]
    return [process for process in found if process.pid not in spared]


def component_of(process: psutil.Process) -> str | None:
    """Which component of Airflow the process is, or None."""
    try:
        match = _COMMAND.search(" ".join(process.cmdline()))
    except psutil.Error:
        return None
    return match.group(1).replace("_", "-") if match else None


def stop_owned(home: Path, sessions: Collection[ProcessId], *, timeout: float) -> None:
    """End every process of this Airflow, by SIGTERM and then by SIGKILL. Raises if one survives SIGKILL."""
    for signal_one in (_ask_to_end, psutil.Process.kill):
        remaining = owned(home, sessions)
        for process in remaining:
            with suppress(psutil.NoSuchProcess):
                signal_one(process)
        psutil.wait_procs(remaining, timeout=timeout)
        survivors = " ".join(str(process.pid) for process in owned(home, sessions))
        if not survivors:
            return
    raise StackError(f"processes of the Airflow in {home} do not end: look at them with `ps -fp {survivors}`")


def _ask_to_end(process: psutil.Process) -> None:
    process.terminate()
    # A frozen process receives the signal only when it continues.
    process.resume()


def _living() -> Iterator[tuple[psutil.Process, int]]:
    """Every process with its parent's pid."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            # A container may have no process that reaps orphans. A zombie has no open ports or files, so it counts as ended.
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process, process.ppid()


def _owner_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(OWNER_VARIABLE)
    except (psutil.Error, OSError):
        return None
