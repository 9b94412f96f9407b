"""Lets a clean-up finish although the user is impatient."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

HELD_BACK = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C and its relatives meanwhile: a second one must not leave half of a stack behind."""
    if threading.current_thread() is not threading.main_thread():
        # Python delivers signals to the main thread only.
        yield
        return
    former = {number: signal.signal(number, signal.SIG_IGN) for number in HELD_BACK}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
