"""A lock between processes. The operating system releases it when its holder dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_ckpt.exceptions import StackError


@contextmanager
def exclusive(path: Path, *, if_held: Callable[[], None]) -> Iterator[int]:
    """Hold the lock at `path` and yield its descriptor; `if_held` is called before waiting for another holder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StackError(
            f"cannot write to {path.parent} ({error.strerror}): make it yours, or choose other folders with "
            "AIRFLOW_CKPT_CACHE (downloads) and AIRFLOW_CKPT_HOME (the stack)"
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if_held()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)
