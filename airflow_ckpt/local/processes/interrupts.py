"""Lets a clean-up finish when the user presses Ctrl-C again."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C and the signals that end a process: a second signal must not leave a half-stopped stack."""
    if threading.current_thread() is not threading.main_thread():
        # Python delivers signals to the main thread only.
        yield
        return
    former = {number: signal.signal(number, signal.SIG_IGN) for number in IGNORED}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
