"""Runs drivers as processes of this machine: for local masters and for clusters in client mode.

The driver is detached: it outlives the Airflow task, its worker and a restart of either. It is found again by process id,
start time and token; its exit status is kept in a file.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_ckpt.checkpoint.locations import same_place
from airflow_ckpt.runners import work_folders
from airflow_ckpt.runners.base import (
    ENDED,
    RUNNING,
    UNKNOWN,
    VANISHED,
    DriverState,
    Handle,
    Launch,
    RunnerError,
    SubmitFailed,
)
from airflow_ckpt.runners.noted_launch import noted_launch
from airflow_ckpt.runners.private_files import SECRETS_FILE, NotPrivate, folder_of, read_private
from ckpt_stream.config import SECRETS_FILE_ENVIRONMENT
from ckpt_stream.lease import boot_id

LAUNCHER = Path(__file__).with_name("launcher.py")
LOG = "driver.log"
#: The launcher notes itself within milliseconds; a loaded machine may take longer.
NOTE_SECONDS = 10.0
#: A killed process is gone within milliseconds, unless it waits for a disk or a network drive that does not answer.
GONE_SECONDS = 10.0


class ProcessRunner:
    """Drivers on this machine, one folder each below `root`.

    Of a handle only the token is believed, for it is kept beside the checkpoint, where others may write: on which machine
    the driver runs, which processes are ended and which files are read is taken from the driver's own folder. Given a
    checkpoint, the runner touches the drivers of that one only.
    """

    kind = "process"

    def __init__(self, root: Path, checkpoint: str = "") -> None:
        self.root, self.checkpoint = root, checkpoint

    def properties(self, token: str) -> Mapping[str, str]:
        return {}

    def start(self, launch: Launch, token: str) -> Handle:
        """Start the driver. It is on its own at once: nothing here waits for it."""
        folder = launch.folder
        work_folders.prune(folder.parent)
        work_folders.note_host(folder)
        command = [sys.executable, "-I", str(LAUNCHER), f"--ckpt-token={token}", str(folder)]
        command += [*launch.secret_files, "--", *launch.argv]
        with open(folder / LOG, "ab", opener=_private) as log:
            try:
                process = subprocess.Popen(
                    command,
                    env={**os.environ, **launch.env, SECRETS_FILE_ENVIRONMENT: os.pathsep.join(launch.secret_files)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    cwd=folder,
                )
            except OSError as e:
                raise SubmitFailed(f"The driver could not be started: {e}") from e
        deadline = time.monotonic() + NOTE_SECONDS
        while (note := _read(folder / work_folders.NOTE)) is None and process.poll() is None:
            if time.monotonic() > deadline:
                process.kill()
                process.wait()
                break
            time.sleep(0.02)
        # It may have noted itself and ended between the two looks. Without a note there is no driver.
        note = note or _read(folder / work_folders.NOTE)
        if note is None:
            for name in launch.secret_files:
                Path(name).unlink(missing_ok=True)
            raise SubmitFailed(f"The driver's launcher ended at once. {self._tail(folder, 20)}")
        return self._handle(token, folder, note)

    def find(self, token: str) -> Handle | None:
        """The driver of this token, if its folder can be seen from here: that may be shared between machines."""
        folder = self._folder(token)
        note = self._note(token)
        return self._handle(token, folder, note) if note is not None else None

    def _folder(self, token: str) -> Path:
        """The driver's folder. Raises NotPrivate for one that is not ours, or of another checkpoint's driver."""
        folder = folder_of(self.root, token)
        launch = noted_launch(self.root, token)
        if launch is not None and self.checkpoint and not same_place(launch.checkpoint, self.checkpoint):
            raise NotPrivate(
                f"{folder} is of a driver of the checkpoint {launch.checkpoint}, and not of {self.checkpoint}."
            )
        return folder

    def _note(self, token: str, name: str = work_folders.NOTE) -> dict[str, Any] | None:
        """What the launcher has noted of itself, its driver and the end."""
        text = read_private(self._folder(token), name)
        value: dict[str, Any] | None = json.loads(text) if text else None
        return value

    def _handle(self, token: str, folder: Path, note: Mapping[str, Any]) -> Handle:
        place = self._note(token, work_folders.HOST) or {}
        details = {
            "host": place.get("host"),
            "boot": place.get("boot"),
            "started": note.get("started"),
            "folder": str(folder),
            "log": str(folder / LOG),
        }
        return Handle(self.kind, str(note["pid"]), token, details)

    def look(self, handle: Handle) -> DriverState:
        """RUNNING while launcher or driver lives; ENDED with its exit status; VANISHED without one."""
        try:
            return self._look(handle)
        except NotPrivate as e:
            return DriverState(UNKNOWN, str(e), url=str(handle.details.get("log", "")))

    def _look(self, handle: Handle) -> DriverState:
        folder = self._folder(handle.token)
        if not folder.exists():
            where = f"it was started on {handle.details.get('host')}; its folder is not in {self.root}"
            return DriverState(UNKNOWN, f"{where}: see `work_folder` in airflow.cfg")
        log = str(folder / LOG)
        place = self._note(handle.token, work_folders.HOST)
        if place is None:
            return DriverState(UNKNOWN, f"{folder} does not say on which machine it runs: it has no host.json", url=log)
        if place.get("host") != socket.gethostname():
            return DriverState(UNKNOWN, f"it runs on {place.get('host')}, which cannot be seen from here", url=log)
        if place.get("boot") != boot_id():
            if work_folders.is_other_container(place.get("boot")):
                return DriverState(UNKNOWN, "it runs in another container of this machine", url=log)
            return DriverState(VANISHED, "the machine was restarted since", url=log)
        return self._look_here(handle, folder, log)

    def _look_here(self, handle: Handle, folder: Path, log: str) -> DriverState:
        if self._pids(handle):
            return DriverState(RUNNING, f"process {handle.id}", url=log)
        # Driver and launcher, which were to delete it, are gone.
        (folder / SECRETS_FILE).unlink(missing_ok=True)
        ended = self._note(handle.token, "exit.json")
        if ended is not None:
            code = int(ended["code"])
            return DriverState(ENDED, _in_words(code), code, log, ended_at=float(ended["time"]))
        return DriverState(VANISHED, f"process {handle.id} is gone and left no exit status", url=log)

    def _pids(self, handle: Handle) -> dict[str, int]:
        """The launcher's process and the driver's, as far as they live."""
        return work_folders.living(self._note(handle.token) or {})

    def kill(self, handle: Handle, *, wait: float = 30.0) -> DriverState:
        """Ask the launcher to end the driver; whatever is left after the wait is killed."""
        state = self.look(handle)
        if state.state == UNKNOWN:
            raise RunnerError(
                f"The driver cannot be ended from here: {state.detail}. Stop it with a stop request "
                "(`airflow-ckpt stop <checkpoint>`), or run this on that machine."
            )
        self._signal(handle, signal.SIGTERM)
        deadline = time.monotonic() + wait
        while self._pids(handle) and time.monotonic() < deadline:
            time.sleep(0.05)
        if wait and self._pids(handle):
            self._signal(handle, signal.SIGKILL)
            deadline = time.monotonic() + GONE_SECONDS
            while self._pids(handle) and time.monotonic() < deadline:
                time.sleep(0.05)
        return self.look(handle)

    def _signal(self, handle: Handle, number: int) -> None:
        for who, pid in self._pids(handle).items():
            try:
                if who == "launcher" and number == signal.SIGTERM:
                    os.kill(pid, number)
                else:
                    os.killpg(pid, number)
            except ProcessLookupError:
                continue

    def log_tail(self, handle: Handle, lines: int = 50) -> str:
        try:
            return self._tail(self._folder(handle.token), lines)
        except NotPrivate as e:
            return f"no log from here: {e}"

    def _tail(self, folder: Path, lines: int) -> str:
        path, text = folder / LOG, ""
        try:
            # The launcher moves what is old aside: just after that the newest part is short.
            for part in (path, path.with_name(f"{LOG}.1")):
                if text.count("\n") < lines and (part is path or part.exists()):
                    text = _end_of(part, lines * 400) + text
        except OSError as e:
            return f"The log {path} cannot be read: {e.strerror}"
        return "\n".join(text.splitlines()[-lines:])


def _end_of(path: Path, size: int) -> str:
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - size))
        return file.read().decode(errors="replace")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return value


def _in_words(code: int) -> str:
    number = -code if code < 0 else code - 128
    try:
        name = signal.Signals(number).name if code < 0 or code > 128 else ""
    except ValueError:
        name = ""
    return f"exit code {code}{f' ({name})' if name else ''}"
