"""The other runs on a run's checkpoint: refuse to run beside one that is alive, and delete records that are too old."""

from __future__ import annotations

import logging

from ckpt_stream.machine.lease import read_other, refuse_if_alive
from ckpt_stream.protocol.run_files import record_files, run_record
from ckpt_stream.protocol.run_files.run_record import RunRecord
from ckpt_stream.protocol.storage import WritableFiles, delete_old_files

log = logging.getLogger("ckpt_stream")


class OtherRuns:
    """The run records beside this run's own; to be made before this run writes its record."""

    def __init__(self, files: WritableFiles, record: RunRecord) -> None:
        self._files, self._record = files, record
        #: The runs that had a record before this one. If one of them is alive, this run is refused, never the other.
        self._earlier = run_record.runs_in(files.names(record_files.RUNS))
        self._known: dict[str, RunRecord] = {}
        #: The last heartbeat of each run that is known to be dead.
        self._dead: dict[str, str] = {}

    def read(self) -> list[RunRecord]:
        """The other runs, in the order of their start. The record of a run that has ended is read only once."""
        for name in run_record.runs_in(self._files.names(record_files.RUNS)):
            known = self._known.get(name)
            if name == self._record.run or (known is not None and known.state not in run_record.NOT_ENDED):
                continue
            self._known[name] = read_other(self._files, name, self._record.heartbeat_seconds)
        return sorted(self._known.values(), key=lambda run: run.run)

    def refuse_if_alive(self) -> None:
        """Raise DriverAlive if another run of this checkpoint is alive."""
        self._dead = refuse_if_alive(
            self._record,
            self.read,
            came_first=self._earlier,
            silent=self._dead,
            say=lambda text: log.info("%s", text),
        )

    def delete_old(self) -> None:
        """Delete the records of all but the newest runs."""
        delete_old_files(self._files, [old.path for old in self.read()[: -run_record.KEEP_RUNS]])
