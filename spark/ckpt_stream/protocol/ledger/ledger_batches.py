"""The batches that a ledger holds, by query and number, in the order in which they were written. Pure.

A ledger belongs to one query until the checkpoint is lost and another query adopts the ledger (`start="ledger"`). The new query
counts its batches from 0 again, so its records have the same keys as records of the query before it, and compaction replaces
the older records. Batches that are missing for this reason, or because the history is bounded, are forgotten: they are no
violation, but the verdict on them is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, LedgerRecord, sink_start
from ckpt_stream.protocol.run_files.adoption import Adoption

Lanes = Sequence[Sequence[LedgerRecord]]


@dataclass(frozen=True)
class Batch:
    """All lanes of one batch."""

    query: str
    number: int
    lanes: Mapping[int, LedgerRecord]
    #: The ledger has batches of other queries too, so a number alone does not identify a batch.
    shared: bool = False
    #: The batch before this one is forgotten, or a part of it.
    cut_off: bool = False
    #: For the first batch of a query: the end of the ledger that the query adopted; None: none, or unknown.
    adopted: Adoption | None = None

    @property
    def id(self) -> tuple[str, int]:
        return self.query, self.number

    @property
    def name(self) -> str:
        return f"batch {self.number}" + (f" of query {self.query}" if self.shared else "")

    @property
    def title(self) -> str:
        return f"B{self.name[1:]}"

    @property
    def where(self) -> dict[str, Any]:
        """The fields that name this batch in a finding."""
        return {"batch": self.number, "query": self.query}

    @property
    def any_lane(self) -> LedgerRecord:
        return next(iter(self.lanes.values()))

    @property
    def missing(self) -> list[int]:
        return [lane for lane in range(self.any_lane.lanes) if lane not in self.lanes]

    @property
    def records(self) -> int:
        return sum(r.records for r in self.lanes.values())

    @property
    def format(self) -> int:
        return self.any_lane.format

    def sink_start(self, topic: str) -> dict[int, int]:
        """Where the sink ended when the batch began; of several attempts the earliest counts."""
        return sink_start(self.lanes.values(), topic)


def batches_of(lanes: Lanes, adoptions: Mapping[str, Adoption] | None = None) -> list[Batch]:
    """The batches of the ledger; an anchor has no records and is no batch. ``adoptions`` holds the ends of ledgers that queries
    adopted, where a file beside the checkpoint has them and the ledger does not."""
    queries = queries_of(lanes)
    rank = {query: number for number, query in enumerate(queries)}
    found: dict[tuple[int, int], dict[int, LedgerRecord]] = {}
    for records in lanes:
        for record in records:
            if record.kind != ANCHOR:
                found.setdefault((rank[record.query_id], record.batch), {}).setdefault(record.lane, record)
    batches = [Batch(queries[of], number, found[of, number], len(queries) > 1) for of, number in sorted(found)]
    return _without_forgotten(batches, _replaced(lanes, queries), adoptions or {})


def queries_of(lanes: Lanes) -> list[str]:
    """The queries in the order in which they wrote; a single lane may lack some of them."""
    orders = [list(dict.fromkeys(r.query_id for r in records if r.kind != ANCHOR)) for records in lanes]
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for order in orders:
        for query in order:
            sorter.add(query)
        for earlier, later in pairwise(order):
            sorter.add(later, earlier)
    try:
        return list(sorter.static_order())
    except CycleError:  # two queries write in turns: `check_lanes` reports that
        return list(dict.fromkeys(query for order in orders for query in order))


#: query -> per lane, the highest batch of which a later query may have replaced the record.
Replaced = Mapping[str, Sequence[int]]


def _replaced(lanes: Lanes, queries: Sequence[str]) -> Replaced:
    highest = {query: [-1] * len(lanes) for query in queries}
    for lane, records in enumerate(lanes):
        for record in records:
            if record.kind != ANCHOR:
                highest[record.query_id][lane] = max(highest[record.query_id][lane], record.batch)
    later, replaced = [-1] * len(lanes), {}
    for query in reversed(queries):
        replaced[query] = later
        later = [max(pair) for pair in zip(later, highest[query], strict=True)]
    return replaced


def _without_forgotten(batches: Sequence[Batch], replaced: Replaced, adoptions: Mapping[str, Adoption]) -> list[Batch]:
    """Leave out the batches that are forgotten in part, and mark each batch whose predecessor is forgotten."""
    kept: list[Batch] = []
    forgotten = False
    leaving = _being_forgotten(batches)
    for batch in batches:
        if batch is leaving or (batch.missing and all(batch.number <= replaced[batch.query][n] for n in batch.missing)):
            forgotten = True
            continue
        if batch.number == 0:
            batch = replace(batch, adopted=_adopted(batch) or adoptions.get(batch.query))
        if forgotten or _forgot_between(kept[-1] if kept else None, batch, replaced):
            batch = replace(batch, cut_off=True)
        forgotten = False
        kept.append(batch)
    return kept


def _being_forgotten(batches: Sequence[Batch]) -> Batch | None:
    """The oldest batch while lanes of the newest are missing: a lane deletes its oldest record when it writes its newest."""
    if not batches or not (newest := batches[-1]).missing:
        return None
    oldest = next(b for b in batches if b.query == newest.query)
    return oldest if oldest is not newest and oldest.missing and set(oldest.missing) <= set(newest.lanes) else None


def _adopted(batch: Batch) -> Adoption | None:
    found = next((r.adopted for r in batch.lanes.values() if r.adopted), None)
    return Adoption(found["query_id"], int(found["batch"])) if found else None


def _forgot_between(previous: Batch | None, batch: Batch, replaced: Replaced) -> bool:
    if previous is None:
        return batch.number > 0 or batch.adopted is not None

    def may_be_replaced(query: str, number: int) -> bool:
        """Whether a later query may have replaced the record of the batch in every lane."""
        return query not in replaced or number <= min(replaced[query][: batch.any_lane.lanes])

    if previous.query == batch.query:
        return batch.number - 1 > previous.number and may_be_replaced(previous.query, batch.number - 1)
    before = batch.adopted
    if batch.number > 0 or before is None:
        return batch.number > 0
    if before.query_id == previous.query and before.batch <= previous.number:
        return False
    return may_be_replaced(before.query_id, before.batch)
