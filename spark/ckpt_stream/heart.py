"""The heartbeat in the run record: the driver's process lives, whatever its other threads are busy with.

It begins with the run's first record, since fencing, reading a large ledger and loading state may take minutes. Whether the
driver does its work is another question: the record also says when its watch last went round (`watched`), and what was
committed when.
"""

from __future__ import annotations

import logging
import threading
import time

from ckpt_stream import run_record as records
from ckpt_stream.files import WritableFiles
from ckpt_stream.run_record import RunRecord

log = logging.getLogger("ckpt_stream")

#: How long the end of a run waits for a beat that is being written.
LAST_BEAT_SECONDS = 10.0


class Heart:
    """The one writer of a run's record: at each change, and in between often enough."""

    def __init__(self, files: WritableFiles, record: RunRecord) -> None:
        self.record = record
        #: Held while the record is written, and for a change that must not be half in it.
        self.lock = threading.RLock()
        self._files = files
        self._ended = threading.Event()
        self._written = 0.0
        self._thread = threading.Thread(target=self._beat, name="ckpt-heart", daemon=True)

    def start(self) -> None:
        """Beat until the end."""
        self._thread.start()

    def save(self) -> None:
        """Write the record as it is now."""
        with self.lock:
            self.record.heartbeat = records.now()
            self._files.write(self.record.path, self.record.to_json())
            self._written = time.monotonic()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(LAST_BEAT_SECONDS)

    def _beat(self) -> None:
        while not self._ended.wait(self._left()):
            if self._left() > 0:
                continue  # written meanwhile, with a batch
            try:
                self.save()
            except Exception as e:
                # Storage may be away for a while, and the stream need not end for that: the next change says so again.
                log.warning("the heartbeat was not written: %s", e)
                self._written = time.monotonic()

    def _left(self) -> float:
        return self._written + self.record.heartbeat_seconds - time.monotonic()
