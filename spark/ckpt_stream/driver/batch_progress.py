"""What the sink and the driver's watch share: the batch being written, and the batches that were written."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from ckpt_stream.protocol.offsets import Offsets


@dataclass(frozen=True)
class WrittenBatch:
    """A batch of which every lane is in the sink."""

    batch: int
    started: str
    ended: str
    start: Offsets
    end: Offsets
    lanes: tuple[dict[str, Any], ...] = ()

    @property
    def differs(self) -> list[int]:
        """The lanes whose records in the sink differ from the replay."""
        return [lane["lane"] for lane in self.lanes if lane["differs"]]

    def as_record(self) -> dict[str, Any]:
        """The batch as the run record keeps it."""
        return {
            "batch": self.batch,
            "started": self.started,
            "ended": self.ended,
            "start": self.start,
            "end": self.end,
            "records": sum(lane["records"] for lane in self.lanes),
            "dead_letters": sum(lane["dead_letters"] for lane in self.lanes),
            "skipped": sum(lane["skipped"] for lane in self.lanes),
            "differs": self.differs,
            "lanes": list(self.lanes),
        }


@dataclass
class BatchProgress:
    """The data that the sink and the driver's watch share, guarded by a lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    #: Set by the sink after each batch.
    changed: threading.Event = field(default_factory=threading.Event)
    #: The batch being written and since when (monotonic), or None between batches.
    current: tuple[int, float] | None = None
    #: Batches that the watch has not noted yet.
    written: list[WrittenBatch] = field(default_factory=list)
    #: The error that ended the sink or, if a batch took too long, the watch.
    error: BaseException | None = None
    #: Set by the watch: no further batch may begin.
    stopping: bool = False
