"""Writes files that only their owner may read."""

from __future__ import annotations

from pathlib import Path

from airflow_ckpt.runners.private_files import write_private


def replace_private(path: Path, text: str) -> None:
    """Write a file in one step: a reader sees the old text or the new one, and only the owner can read it, at every moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    write_private(new, text)
    new.replace(path)
