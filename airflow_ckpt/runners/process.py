"""Runs drivers as processes of this machine: for local masters and for clusters in client mode.

The driver is detached: it continues when the Airflow task or its worker ends or restarts. It is found by process id, start time
and token; its exit status is kept in a file.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_ckpt.checkpoint.locations import same_place
from airflow_ckpt.exceptions import NotPrivate, RunnerError, SubmitFailed
from airflow_ckpt.runners import work_folders
from airflow_ckpt.runners.base import Launch
from airflow_ckpt.runners.launch_note import read_launch
from airflow_ckpt.runners.launcher import DRIVER_LOG, DRIVER_NOTE, EXIT_NOTE
from airflow_ckpt.runners.private_files import SECRETS_FILE, folder_of, read_private
from airflow_ckpt.streams.driver_state import ENDED, RUNNING, UNKNOWN, VANISHED, DriverState, Handle
from ckpt_stream.machine.process_identity import boot_id
from ckpt_stream.protocol.deadline import Deadline
from ckpt_stream.protocol.settings.input_names import SECRETS_FILE_ENVIRONMENT

LAUNCHER = Path(__file__).with_name("launcher.py")
#: The launcher writes driver.json within milliseconds; on a busy machine it takes longer.
NOTE_SECONDS = 10.0
#: A killed process ends within milliseconds, unless it waits for a disk or a network drive that does not answer.
GONE_SECONDS = 10.0


class ProcessRunner:
    """Drivers on this machine, one folder each below `root`.

    Handles are stored beside the checkpoint, where other users may write. So the runner uses only a handle's token, and reads the
    machine, the processes and the files from the driver's own folder. A runner with a `checkpoint` refuses the drivers of other
    checkpoints.
    """

    kind = "process"

    def __init__(self, root: Path, checkpoint: str = "") -> None:
        self.root, self.checkpoint = root, checkpoint

    def properties(self, token: str) -> Mapping[str, str]:
        return {}

    def start(self, launch: Launch, token: str) -> Handle:
        """Start the driver through its launcher, and return when the launcher has written driver.json."""
        folder = launch.folder
        work_folders.prune(folder.parent)
        work_folders.note_host(folder)
        command = [sys.executable, "-I", str(LAUNCHER), f"--ckpt-token={token}", str(folder)]
        command += [*launch.secret_files, "--", *launch.argv]
        with open(folder / DRIVER_LOG, "ab", opener=_private) as log:
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
        note_file = folder / DRIVER_NOTE
        deadline = Deadline.after(NOTE_SECONDS)
        if not deadline.wait_for(lambda: note_file.exists() or process.poll() is not None, 0.02):
            process.kill()
            process.wait()
        # A launcher that has ended may have written driver.json before. Without this file there is no driver.
        note = _read(note_file)
        if note is None:
            for name in launch.secret_files:
                Path(name).unlink(missing_ok=True)
            raise SubmitFailed(f"The driver's launcher ended before it started a driver. {self._tail(folder, 20)}")
        return self._handle(token, folder, note)

    def find(self, token: str) -> Handle | None:
        """The driver with this token, if this machine can read its folder; machines may share folders."""
        folder = self._folder(token)
        note = self._note(token)
        return self._handle(token, folder, note) if note is not None else None

    def _folder(self, token: str) -> Path:
        """The driver's folder. Raises NotPrivate for a folder of another user or of another checkpoint's driver."""
        folder = folder_of(self.root, token)
        launch = read_launch(self.root, token)
        if launch is not None and self.checkpoint and not same_place(launch.checkpoint, self.checkpoint):
            raise NotPrivate(
                f"{folder} belongs to a driver of the checkpoint {launch.checkpoint}, not of {self.checkpoint}."
            )
        return folder

    def _note(self, token: str, name: str = DRIVER_NOTE) -> dict[str, Any] | None:
        """Read one of the JSON files in the driver's folder: its processes, its machine or its end."""
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
            "log": str(folder / DRIVER_LOG),
        }
        return Handle(self.kind, str(note["pid"]), token, details)

    def look(self, handle: Handle) -> DriverState:
        """RUNNING while launcher or driver runs; ENDED with an exit status; VANISHED without one."""
        try:
            return self._look(handle)
        except NotPrivate as e:
            return DriverState(UNKNOWN, str(e), url=str(handle.details.get("log", "")))

    def _look(self, handle: Handle) -> DriverState:
        folder = self._folder(handle.token)
        if not folder.exists():
            where = f"it was started on {handle.details.get('host')}; its folder is not in {self.root}"
            return DriverState(UNKNOWN, f"{where}: see `work_folder` in airflow.cfg")
        log = str(folder / DRIVER_LOG)
        place = self._note(handle.token, work_folders.HOST)
        if place is None:
            return DriverState(UNKNOWN, f"the machine of the driver is unknown: {folder} has no host.json", url=log)
        if place.get("host") != socket.gethostname():
            return DriverState(
                UNKNOWN, f"it runs on {place.get('host')}, whose processes cannot be seen from this machine", url=log
            )
        if place.get("boot") != boot_id():
            if work_folders.is_other_container(place.get("boot")):
                return DriverState(UNKNOWN, "it runs in another container of this machine", url=log)
            return DriverState(VANISHED, "the machine was restarted after the driver's start", url=log)
        return self._look_here(handle, folder, log)

    def _look_here(self, handle: Handle, folder: Path, log: str) -> DriverState:
        if self._pids(handle):
            return DriverState(RUNNING, f"process {handle.id}", url=log)
        # The launcher deletes the secrets at the driver's end, unless it was killed before.
        (folder / SECRETS_FILE).unlink(missing_ok=True)
        ended = self._note(handle.token, EXIT_NOTE)
        if ended is not None:
            code = int(ended["code"])
            return DriverState(ENDED, _in_words(code), code, log, ended_at=float(ended["time"]))
        return DriverState(VANISHED, f"process {handle.id} has ended and left no exit status", url=log)

    def _pids(self, handle: Handle) -> dict[str, int]:
        """The processes of launcher and driver that are running."""
        return work_folders.running_processes(self._note(handle.token) or {})

    def kill(self, handle: Handle, *, wait: float = 30.0) -> DriverState:
        """Send SIGTERM to the launcher, which ends the driver; kill the processes that still run after the wait."""
        state = self.look(handle)
        if state.state == UNKNOWN:
            raise RunnerError(
                f"The driver cannot be ended from this machine: {state.detail}. Stop it with a stop request "
                "(`airflow-ckpt stop <checkpoint>`), or run this on its machine."
            )
        self._signal(handle, signal.SIGTERM)
        if wait and not Deadline.after(wait).wait_for(lambda: not self._pids(handle)):
            self._signal(handle, signal.SIGKILL)
            Deadline.after(GONE_SECONDS).wait_for(lambda: not self._pids(handle))
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
            return f"the log cannot be read from here: {e}"

    def _tail(self, folder: Path, lines: int) -> str:
        path, text = folder / DRIVER_LOG, ""
        try:
            # The launcher moves a log that is too long to a second file; just after that the log is short.
            for part in (path, path.with_name(f"{DRIVER_LOG}.1")):
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
