"""The heartbeat in the run record: it shows that the driver's process is alive, whatever its other threads are doing.

It begins with the run's first record, because fencing, reading a large ledger and loading state may take minutes. It does not
show that the driver makes progress: for that the record also holds when its watch last looked at the query (`watched`), and
when each batch was committed.
"""

from __future__ import annotations

import logging
import threading
import time

from ckpt_stream.protocol.run_files import record_files
from ckpt_stream.protocol.run_files.run_record import RunRecord
from ckpt_stream.protocol.storage import WritableFiles

log = logging.getLogger("ckpt_stream")

#: How long the end of a run waits for a heartbeat that is being written.
LAST_HEARTBEAT_SECONDS = 10.0


class Heartbeat:
    """Writes a run's record: at each change, and between changes every ``heartbeat_seconds``."""

    def __init__(self, files: WritableFiles, record: RunRecord) -> None:
        self.record = record
        #: Held while the record is written, and during a change that must be written as a whole.
        self.lock = threading.RLock()
        self._files = files
        self._ended = threading.Event()
        self._written = 0.0
        self._thread = threading.Thread(target=self._write_heartbeats, name="ckpt-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to write heartbeats, until `stop`."""
        self._thread.start()

    def save(self) -> None:
        """Write the record as it is now; an error of the storage is raised."""
        with self.lock:
            self.record.heartbeat = record_files.now()
            self._files.write(self.record.path, self.record.to_json())
            self._written = time.monotonic()

    def stop(self) -> None:
        """Write no more heartbeats."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(LAST_HEARTBEAT_SECONDS)

    def _write_heartbeats(self) -> None:
        while not self._ended.wait(self._seconds_left()):
            if self._seconds_left() > 0:
                continue  # a batch has written the record in the meantime
            try:
                self.save()
            except Exception as e:
                # Storage may be unavailable for a while. A heartbeat that cannot be written must not end the stream; a change of
                # the record that cannot be written ends it.
                log.warning("the heartbeat could not be written: %s", e)
                self._written = time.monotonic()

    def _seconds_left(self) -> float:
        return self._written + self.record.heartbeat_seconds - time.monotonic()
