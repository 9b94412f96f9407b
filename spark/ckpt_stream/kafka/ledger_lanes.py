"""Reads all lanes of a ledger, any number of times, for a verification."""

from __future__ import annotations

from collections.abc import Iterable

from ckpt_stream.kafka.ledger_reader import LaneReader, open_reader
from ckpt_stream.kafka.settings import Kafka
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord


class LedgerLanes:
    """The lanes of one ledger. A second read fetches only new records."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._kafka, self.topic = kafka, topic
        self._readers: dict[int, LaneReader] = {}

    def read(self, lanes: Iterable[int]) -> list[list[LedgerRecord]]:
        """Every record of each of these lanes, in the order in which they were written."""
        with open_reader(self._kafka) as consumer:
            readers = [self._readers.setdefault(lane, LaneReader(self.topic, lane)) for lane in lanes]
            return [reader.read(consumer) for reader in readers]
