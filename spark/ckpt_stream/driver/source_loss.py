"""Finds the records that a stream's source has lost, and skips them in a separate batch if a user has accepted the loss.

A query of Spark either fails on every lost record or on none. So a batch is made of the lost offsets only, and a query that does
not fail on lost records runs this batch. The query after it fails on lost records again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ckpt_stream.errors import BatchNotRun, DataLost, PlanMissing
from ckpt_stream.kafka.topics import Topics
from ckpt_stream.protocol.checkpoint.batch_offsets import start_offsets
from ckpt_stream.protocol.checkpoint.checkpoint_log import (
    initial_offsets,
    input_digest,
    parse_commit,
    parse_offsets,
    with_offsets,
)
from ckpt_stream.protocol.checkpoint.intact_checkpoint import read_intact_checkpoint
from ckpt_stream.protocol.data_loss import LostRange, after_loss, beyond_accepted, find_lost, name_ranges
from ckpt_stream.protocol.offsets import Offsets
from ckpt_stream.protocol.run_files.record_files import replaced
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.spark.hadoop_files import CheckpointFiles

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LossBatch:
    """A batch that skips lost records, run by a separate query that does not fail on them."""

    batch: int
    #: Spark has planned this batch, and it has more than the lost offsets: after it, the source must be checked for losses again.
    as_planned: bool


class SourceLoss:
    """The records that a stream's source has lost before the stream has read them."""

    def __init__(self, files: CheckpointFiles, topics: Topics, config: StreamConfig) -> None:
        self._files, self._topics, self._config = files, topics, config

    def find(self, batch: int | None = None) -> tuple[LostRange, ...]:
        """The ranges that are lost from this batch on; without a batch, from the first uncommitted batch on."""
        return find_lost(self._position(batch), self._topics.first_offsets(self._partitions()))

    def _partitions(self) -> dict[str, list[int]]:
        return self._topics.source_partitions(self._config.source, self._config.source_pattern)

    def _position(self, batch: int | None) -> Offsets:
        # Before the first batch, the position is the one that Spark has written down for the source, if it has done so already.
        return start_offsets(
            self._files, _next(read_intact_checkpoint(self._files).committed) if batch is None else batch
        )

    def refuse_unless_accepted(self, batch: int | None = None) -> tuple[LostRange, ...]:
        """Return the lost ranges; raises DataLost if more is lost than a user has accepted."""
        lost = self.find(batch)
        if beyond := beyond_accepted(lost, self._config.accepted_loss):
            raise self.refusal(beyond)
        return lost

    def refusal(self, lost: tuple[LostRange, ...]) -> DataLost:
        """The refusal to continue without these records."""
        checkpoint, accepted = self._config.checkpoint, self._config.accepted_loss
        also = f" Only the loss of {name_ranges(accepted)} was accepted." if accepted else ""
        return DataLost(
            f"The source has lost records that the stream has not read: {name_ranges(lost)}.{also}",
            "They would be missing from the sink.",
            "write them to the source again from another copy and start over; or accept the loss: "
            f"`airflow-ckpt resume {checkpoint} --new-budget` names the finding, which `--allow` then takes, for example "
            "`--allow data_lost`.",
        )

    def batches(self, *, partly_in_sink: bool) -> Iterator[LossBatch]:
        """The batches to run before the stream continues; each must be committed before the next one is requested.

        ``partly_in_sink``: a lane of the batch in doubt is already in the sink. Then the batch must stay as it was planned;
        otherwise it is planned again.
        """
        lost = self.refuse_unless_accepted()
        if lost and read_intact_checkpoint(self._files).newest is None:
            self._begin_after(lost)
            return
        in_doubt = read_intact_checkpoint(self._files).in_doubt
        if lost and in_doubt is not None and partly_in_sink:
            yield LossBatch(in_doubt, as_planned=True)
            self._must_be_committed(in_doubt)
            lost = self.refuse_unless_accepted()
        if lost:
            batch = self._plan(lost)
            yield LossBatch(batch, as_planned=False)
            self._must_be_committed(batch)

    def _must_be_committed(self, batch: int) -> None:
        if read_intact_checkpoint(self._files).committed != batch:
            raise BatchNotRun(
                f"Spark ended batch {batch}, which skips an accepted loss, without committing it. What helps: start again; the "
                "next run finishes the batch."
            )

    def _begin_after(self, lost: tuple[LostRange, ...]) -> None:
        """Let the source begin after the lost records: no batch is planned yet, so no separate batch is needed."""
        self._files.write("sources/0/0", initial_offsets(after_loss(start_offsets(self._files, 0), lost)))
        log.warning("the first batch begins after the accepted loss of %s", name_ranges(lost))

    def _plan(self, lost: tuple[LostRange, ...]) -> int:
        """Write the offset log's entry of a batch that holds the lost offsets and nothing else; returns its number."""
        batch = _next(read_intact_checkpoint(self._files).committed)
        last = max(0, batch - 1)
        text = self._files.read(f"offsets/{last}")
        if text is None:
            raise PlanMissing(
                f"offsets/{last} is not in the checkpoint any more. Nothing was written. What helps: find out which user or "
                "program deletes files of the checkpoint, then start again."
            )
        watermark = parse_offsets(text, f"offsets/{last}").watermark_ms
        if batch > 0 and (done := self._files.read(f"commits/{last}")):
            watermark = max(watermark, parse_commit(done, f"commits/{last}").next_watermark_ms)
        ends = after_loss(start_offsets(self._files, batch), lost)
        if (before := self._files.read(f"offsets/{batch}")) is not None:
            # An earlier driver that is still alive may write the batch as it was planned before; then this entry is needed again.
            self._files.write(replaced(batch, input_digest(before)), before)
        self._files.write(f"offsets/{batch}", with_offsets(text, ends, watermark, int(time.time() * 1000)))
        log.warning("batch %s passes over the accepted loss of %s", batch, name_ranges(lost))
        return batch


def _next(committed: int | None) -> int:
    return 0 if committed is None else committed + 1
