"""How a run takes up a request to stop that a user may withdraw at the same moment.

A user who withdraws a request deletes its file, then reads the run record. The run notes in its record that it stops, then reads
the request's file again. So at least one of them sees what the other one did: either the run goes on, or the user knows that
it ends.
"""

from __future__ import annotations

from ckpt_stream.files import WritableFiles, tidy
from ckpt_stream.heart import Heart
from ckpt_stream.run_record import STOP


def take_up(files: WritableFiles, heart: Heart, text: str) -> bool:
    """Note that the run ends on this request. False if it was withdrawn, or replaced by another one, meanwhile."""
    _note(heart, True)
    if files.read(STOP) == text:
        return True
    _note(heart, False)
    return False


def remove(files: WritableFiles, text: str) -> bool:
    """Delete this request, which is of no use any more. False if another one has been written meanwhile: that one stays."""
    if files.read(STOP) != text:
        return False
    tidy(files, [STOP])
    return True


def _note(heart: Heart, stopping: bool) -> None:
    with heart.lock:
        heart.record.stopping = stopping
        heart.save()
