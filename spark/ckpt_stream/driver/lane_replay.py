"""Reads the rows of a lane that is not written, and compares them with what the ledger holds of that lane."""

from __future__ import annotations

from ckpt_stream.driver.end_of_input import LaneInput
from ckpt_stream.driver.lane_spec import LaneSpec
from ckpt_stream.driver.lane_sums import LaneSums
from ckpt_stream.errors import ReplayDiffers
from ckpt_stream.protocol.ledger.batch_to_write import BatchToWrite
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord


def read_replay(spec: LaneSpec, lane: int, rows: LaneInput, sums: LaneSums, expected: LedgerRecord | None) -> bool:
    """Read the rows of a lane to their end, and return whether they differ from the lane in the sink.

    Raises ReplayDiffers if they differ and that is not allowed: other lanes of the batch would be written from another replay
    than this lane was. ``expected`` is None if the ledger has no sums of the lane, or if the source has lost records of it.
    """
    for batch in rows:
        sums.add(batch)
    rows.require_end()
    if expected is None:
        return False
    # The checksums of two formats cannot be compared.
    same = expected.format == spec.ledger_format and sums.compared(with_places=expected.placed is not None) == (
        expected.records,
        expected.checksum,
        expected.placed,
        expected.dead_letters,
        expected.dead_letter_checksum,
    )
    if not same and not spec.may_differ:
        raise _replay_differs(spec.to_write, lane, sums, expected)
    return not same


def _replay_differs(to_write: BatchToWrite, lane: int, sums: LaneSums, expected: LedgerRecord) -> ReplayDiffers:
    return ReplayDiffers(
        f"Lane {lane} of batch {to_write.batch} is in the sink with {expected.records} record(s) and checksum "
        f"{expected.checksum:016x} (ledger format {expected.format}); its replay gives {sums.records} and "
        f"{sums.checksum:016x}.",
        "The batch does not replay identically (a transform that depends on time, chance or outside data, changed code, or "
        "changed source data). The lanes that are not in the sink yet, and the state, come from this replay and do not fit "
        "the lanes that are: records would be lost or doubled.",
        "run the version of the application that wrote the batch until it is committed, then make the transform a function "
        f"of its input alone; or accept the loss with `airflow-ckpt ledger accept-replay {to_write.sink.sink_id} --checkpoint "
        "...`, which lets the stream continue with the new replay.",
    )
