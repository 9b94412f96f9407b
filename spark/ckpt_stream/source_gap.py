"""Brings a stream over records that its source has lost, where a user has accepted that, in a batch of its own.

Spark fails on every loss or on none, for as long as a query lives. So the lost offsets, and they alone, become one batch,
which a query runs that fails on none; the query that comes after it fails on every loss.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ckpt_stream.checkpoint_log import initial_offsets, parse_commit, parse_offsets, with_offsets
from ckpt_stream.config import StreamConfig
from ckpt_stream.data_loss import Lost, behind, find_lost, in_words, not_accepted
from ckpt_stream.errors import DataLost, StreamError
from ckpt_stream.files import CheckpointFiles
from ckpt_stream.ledger import Offsets, digest
from ckpt_stream.run_record import replaced
from ckpt_stream.sink import start_offsets
from ckpt_stream.start_of_run import checkpoint_end
from ckpt_stream.topics import Topics

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GapBatch:
    """A batch that a query of its own runs, which does not fail on lost records."""

    batch: int
    #: It was planned by Spark and holds more than the lost offsets: what is lost in it must be looked at again after it.
    as_planned: bool


class SourceGap:
    """What the source of a stream has lost before the stream could read it."""

    def __init__(self, files: CheckpointFiles, topics: Topics, config: StreamConfig) -> None:
        self._files, self._topics, self._config = files, topics, config

    def find(self, batch: int | None = None) -> tuple[Lost, ...]:
        """What is lost of everything from this batch on; of all that is not committed, if none is named."""
        return find_lost(self._position(batch), self._topics.earliest(self._partitions()))

    def _partitions(self) -> dict[str, list[int]]:
        return self._topics.partitions(self._config.source, self._config.source_pattern)

    def _position(self, batch: int | None) -> Offsets:
        # Before the first batch it is what the source has pinned; before that nothing, and the start position decides.
        return start_offsets(self._files, _next(checkpoint_end(self._files).committed) if batch is None else batch)

    def refuse_unless_accepted(self, batch: int | None = None) -> tuple[Lost, ...]:
        """What is lost; raises DataLost if that is more than was accepted."""
        lost = self.find(batch)
        if beyond := not_accepted(lost, self._config.accepted_loss):
            raise self.refusal(beyond)
        return lost

    def refusal(self, lost: tuple[Lost, ...]) -> DataLost:
        checkpoint, accepted = self._config.checkpoint, self._config.accepted_loss
        also = f" Only the loss of {in_words(accepted)} was accepted." if accepted else ""
        return DataLost(
            f"The source has lost records that the stream has not read: {in_words(lost)}.{also}",
            "They would be missing from the sink.",
            "put them back from elsewhere and start over; or accept the loss: "
            f"`airflow-ckpt resume {checkpoint} --new-budget` names the finding, which `--allow` then takes, for example "
            "`--allow data_lost`.",
        )

    def batches(self, *, in_sink: bool) -> Iterator[GapBatch]:
        """The batches to run before the stream goes on, each to be committed before the next is asked for.

        ``in_sink`` says whether a lane of the batch in doubt is in the sink already. Then the batch must stay as it was
        planned; else it is planned anew.
        """
        lost = self.refuse_unless_accepted()
        if lost and checkpoint_end(self._files).newest is None:
            self._begin_behind(lost)
            return
        in_doubt = checkpoint_end(self._files).in_doubt
        if lost and in_doubt is not None and in_sink:
            yield GapBatch(in_doubt, as_planned=True)
            self._must_be_committed(in_doubt)
            lost = self.refuse_unless_accepted()
        if lost:
            batch = self._plan(lost)
            yield GapBatch(batch, as_planned=False)
            self._must_be_committed(batch)

    def _must_be_committed(self, batch: int) -> None:
        if checkpoint_end(self._files).committed != batch:
            raise StreamError(f"Batch {batch}, which passes over an accepted loss, has ended without being committed.")

    def _begin_behind(self, lost: tuple[Lost, ...]) -> None:
        """No batch was planned yet, so none has to pass over what was lost: the source begins behind it."""
        self._files.write("sources/0/0", initial_offsets(behind(start_offsets(self._files, 0), lost)))
        log.warning("the first batch begins behind the accepted loss of %s", in_words(lost))

    def _plan(self, lost: tuple[Lost, ...]) -> int:
        """Write the offset log's entry of a batch that holds what was lost, and nothing else."""
        batch = _next(checkpoint_end(self._files).committed)
        last = max(0, batch - 1)
        text = self._files.read(f"offsets/{last}")
        if text is None:
            raise StreamError(f"offsets/{last} is not in the checkpoint.")
        watermark = parse_offsets(text, f"offsets/{last}").watermark_ms
        if batch > 0 and (done := self._files.read(f"commits/{last}")):
            watermark = max(watermark, parse_commit(done, f"commits/{last}").next_watermark_ms)
        ends = behind(start_offsets(self._files, batch), lost)
        if (before := self._files.read(f"offsets/{batch}")) is not None:
            # An attempt of a former driver that is still alive may bring the batch into the sink as it was planned before.
            self._files.write(replaced(batch, digest(before)), before)
        self._files.write(f"offsets/{batch}", with_offsets(text, ends, watermark, int(time.time() * 1000)))
        log.warning("batch %s passes over the accepted loss of %s", batch, in_words(lost))
        return batch


def _next(committed: int | None) -> int:
    return 0 if committed is None else committed + 1
