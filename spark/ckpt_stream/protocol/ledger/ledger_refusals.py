"""The refusals of a comparison of the ledger with the checkpoint: what each message says, and what helps."""

from __future__ import annotations

from ckpt_stream.errors import ForeignLedger, LanesChanged, LedgerAhead, LedgerLost, OtherInput, SinkRecreated
from ckpt_stream.protocol.ledger.batch_to_write import BatchToWrite, SinkIdentity
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord, ledger_topic
from ckpt_stream.protocol.run_files.record_files import replaced


def foreign_ledger(last: LedgerRecord, sink_id: str, query_id: str | None) -> ForeignLedger:
    """``query_id`` is the query of the checkpoint; None before its first batch."""
    mine = f"belongs to query {query_id}" if query_id else "holds no batch yet"
    return ForeignLedger(
        f"The ledger {ledger_topic(sink_id)} ends with batch {last.batch} of query {last.query_id}, but the "
        f"checkpoint {mine}.",
        "Either the checkpoint was deleted, and everything since its start would be written twice, or a second stream "
        "uses the same sink id, and the two would fence each other.",
        "put the checkpoint back; or give the second stream another sink_id; or, for a stateless stream whose "
        'checkpoint is gone, set `start="ledger"` to continue where the ledger ends; or start over on purpose with '
        f"`airflow-ckpt ledger reset {sink_id}`.",
    )


def sink_recreated(last: LedgerRecord, sink: SinkIdentity, helps: str) -> SinkRecreated:
    return SinkRecreated(
        f"The sink topic {sink.topic!r} has id {sink.topic_id}, the ledger's last batch {last.batch} went to "
        f"{last.topic!r} with id {last.topic_id}.",
        "The topic was deleted and created again, or the stream was given another topic: the records of earlier batches, "
        "which the ledger counts as written, would be missing.",
        helps,
    )


def ledger_ahead(last: LedgerRecord, lane: int, to_write: BatchToWrite) -> LedgerAhead:
    return LedgerAhead(
        f"The checkpoint is about to write batch {to_write.batch}, but lane {lane} of {ledger_topic(to_write.sink.sink_id)} "
        f"already holds batch {last.batch} of the same query.",
        f"The checkpoint was rolled back or cloned: batches {to_write.batch} to {last.batch} would be in the sink twice.",
        "put the newest checkpoint back; for a stateless stream, start on an empty checkpoint folder with "
        '`start="ledger"`, which continues at the offsets where the ledger ends.',
    )


def lanes_changed(last: LedgerRecord, lane: int, to_write: BatchToWrite) -> LanesChanged:
    return LanesChanged(
        f"Batch {last.batch} of lane {lane} was written with {last.lanes} lane(s), the stream now has "
        f"{to_write.sink.lanes}.",
        f"Batch {to_write.batch} is in doubt: with other lanes its records would be divided differently, and some would "
        "be lost or doubled.",
        f"start the stream once with lanes={last.lanes}; when batch {to_write.batch} is committed, stop it and change the "
        "lanes.",
    )


def ledger_lost(lane: int, to_write: BatchToWrite, found: str) -> LedgerLost:
    sink_id = to_write.sink.sink_id
    return LedgerLost(
        f"Lane {lane} of {ledger_topic(sink_id)} {found}, but the checkpoint is at batch {to_write.batch}.",
        f"So it is unknown whether batch {to_write.batch} is in the sink already: writing it might double its records.",
        f"if the checkpoint is right, `airflow-ckpt ledger rebuild {sink_id}` anchors the ledger at it again.",
    )


def other_input(last: LedgerRecord, lane: int, to_write: BatchToWrite) -> OtherInput:
    batch = to_write.batch
    return OtherInput(
        f"Lane {lane} of the ledger holds batch {batch} with input digest {last.digest} and end offsets "
        f"{dict(last.end)}, the checkpoint's batch {batch} has digest {to_write.digest}.",
        "The same batch number was planned over other source offsets: skipping it would lose records, writing it "
        "would double some.",
        "put the checkpoint back that wrote the ledger; for a stateless stream, start on an empty checkpoint folder "
        'with `start="ledger"`. If the batch was planned again over an accepted loss while an attempt of a former driver '
        f"was still alive, the checkpoint has the plan that is in the ledger: copy {replaced(batch, last.digest)} over "
        f"offsets/{batch}, and delete offsets/.{batch}.crc where there is one.",
    )
