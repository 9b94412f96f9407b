"""Shows the progress of a download on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console


@contextmanager
def shown(what: str, cache: Path) -> Iterator[Callable[[], None]]:
    """Yields a function that updates a spinner with jars and MB so far on a terminal; without a terminal it does nothing."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with Console(stderr=True).status(what) as status:
        yield lambda: status.update(f"{what}: {progress(cache)}")


def progress(cache: Path) -> str:
    """The number and the size of the jars in Ivy's cache; the size includes an unfinished download (`.part`)."""
    sizes = {file: _size(file) for file in cache.rglob("*.jar*") if file.suffix in (".jar", ".part")}
    if not sizes:
        return "finding out which jars are needed"
    jars = sum(file.suffix == ".jar" for file in sizes)
    return f"{jars} jars, {sum(sizes.values()) / 1e6:.1f} MB"


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
