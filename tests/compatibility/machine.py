"""What stored files name of the machine they were made on, and what stands for it in the repository."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from ckpt_stream.machine.process_identity import boot_id

REPOSITORY = Path(__file__).parents[2]
FOLDER = "/opt/streams"


def owned(root: Path) -> dict[str, str]:
    """Where the files are and which machine may look after their processes, and what stands for it."""
    return {
        str(root): FOLDER,
        boot_id(): "5f0d9d0e-8f0c-4b7e-9b60-3c6f5a1f0001 pid:[4026531836]",
        f'"{socket.gethostname()}"': '"worker-1.example"',
    }


def installed() -> dict[str, str]:
    """Where programs are, and what stands for it; a path comes before the one that it is below."""
    return {
        str(Path(sys.executable).parent): "/opt/venv/bin",
        str(REPOSITORY): "/opt/airflow-ckpt",
        os.environ["AIRFLOW_HOME"]: "/opt/airflow",
    }


def take_names_out(root: Path) -> None:
    """Put the stand-ins into every file below the folder."""
    for path in _files(root):
        path.write_text(_replaced(path.read_text(), {**owned(root), **installed()}))


def copy_as_if_stored_here(stored: Path, root: Path) -> Path:
    """A copy of stored files as if this machine had made them, with the rights that a driver's folder has."""
    names = {stand_in: name for name, stand_in in owned(root).items()}
    for path in _files(stored):
        copy = root / path.relative_to(stored)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(_replaced(path.read_text(), names))
    for folder in root.glob("work/*"):
        folder.chmod(0o700)
    return root


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


def _replaced(text: str, names: dict[str, str]) -> str:
    for name, other in names.items():
        text = text.replace(name, other)
    return text
