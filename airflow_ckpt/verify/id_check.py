"""Duplicates, gaps and aliens among the ids of records. Pure: ids in, findings out."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from airflow_ckpt.verify.ids import id_bytes, whole_number
from airflow_ckpt.verify.verdict import Finding

#: Faults of one kind that are listed one by one; the rest is only counted.
LISTED = 20
#: Ids of a caller's list that are looked up at once.
AT_ONCE = 100_000

Place = tuple[int, int]
#: What is kept of an id: a hash, or the number itself; None when the id is no number.
Mark = Callable[[bytes], int | None]
#: How many, and what to say about them.
Checked = tuple[int, list[Finding]]


@dataclass
class Ids:
    """The ids of a topic with their places, in the order read."""

    topic: str
    #: The ids are whole numbers, kept as they are; else 64-bit hashes.
    sequence: bool = False
    marks: array[int] = field(init=False)
    partitions: array[int] = field(default_factory=lambda: array("i"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    #: Records without an id, and the places of the first of them.
    without: int = 0
    first_without: list[Place] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.marks = array("q" if self.sequence else "Q")

    @property
    def records(self) -> int:
        return len(self.marks) + self.without

    @property
    def mark(self) -> Mark:
        return whole_number if self.sequence else _hash()

    def add(self, found: bytes | None, place: Place) -> None:
        mark = None if found is None else self.mark(found)
        if mark is None:
            self.without += 1
            if len(self.first_without) < LISTED:
                self.first_without.append(place)
            return
        self.marks.append(mark)
        self.partitions.append(place[0])
        self.offsets.append(place[1])

    def arrays(self) -> tuple[Any, Any, Any]:
        """Marks, partitions and offsets as numpy sees them, without a copy."""
        import numpy as np

        types = (np.int64 if self.sequence else np.uint64, np.intc, np.int64)
        kept = (self.marks, self.partitions, self.offsets)
        marks, partitions, offsets = (
            np.frombuffer(k, dtype=t) if len(k) else np.array([], t) for k, t in zip(kept, types, strict=True)
        )
        return marks, partitions, offsets

    def place(self, index: Any) -> Place:
        return self.partitions[int(index)], self.offsets[int(index)]


def _hash() -> Mark:
    from xxhash import xxh64_intdigest

    return xxh64_intdigest


def check_without(ids: Ids) -> Iterator[Finding]:
    """Records that cannot be told apart keep us from telling."""
    if ids.without:
        places = ", ".join(_at(ids.topic, place) for place in ids.first_without[:5])
        partition, offset = ids.first_without[0]
        yield Finding(
            "no_id",
            f"{ids.without} record(s) have no id of that kind: {places}{' ...' if ids.without > 5 else '.'}",
            "check the id's path; records without one cannot be told apart",
            topic=ids.topic, partition=partition, offset=offset, records=ids.without, violation=False,
        )  # fmt: skip


def check_duplicates(sink: Ids) -> Checked:
    """Every copy of an id but the first."""
    import numpy as np

    marks, _, _ = sink.arrays()
    order = np.argsort(marks, kind="stable")
    ordered = marks[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1
    first = {int(order[i]): sink.place(order[np.searchsorted(ordered, ordered[i])]) for i in again[:LISTED]}

    def words(index: int) -> str:
        return f"has the same id as the one at {_at(sink.topic, first[index])}"

    helps = "see what wrote it twice: a restart of a job whose sink is at-least-once, or two jobs"
    return len(again), _listed("duplicate", sink, order[again], words, helps)


def check_holes(sink: Ids) -> Checked:
    """Whole numbers without a record between the least and the largest."""
    import numpy as np

    numbers = np.unique(sink.arrays()[0])
    # As unsigned numbers: the distance of two 64-bit numbers may be larger than a signed one.
    steps = np.diff(numbers.view(np.uint64))
    holes = np.flatnonzero(steps > 1)
    lost = sum(int(step) - 1 for step in steps[holes])
    findings, listed = [], 0
    for i in holes[:LISTED]:
        size, first, last = int(steps[i]) - 1, int(numbers[i]) + 1, int(numbers[i + 1]) - 1
        which = f"The id {first} is" if size == 1 else f"The {size} ids {first} to {last} are"
        what = f"{which} missing between the least and the largest."
        findings.append(Finding("lost", what, "", topic=sink.topic, records=size))
        listed += size
    if lost > listed:
        what = f"{lost - listed} more id(s) are missing."
        findings.append(Finding("lost", what, "", topic=sink.topic, records=lost - listed))
    return lost, findings


def check_expected(sink: Ids, expected: Iterable[object]) -> tuple[Checked, Checked]:
    """Lost and alien against ids that the caller names; they are looked up some at a time and not kept."""
    import numpy as np

    marks, _, _ = sink.arrays()
    there = np.unique(marks)
    used = np.zeros(len(there), dtype=bool)
    mark = sink.mark
    lost = 0
    examples: list[object] = []
    given = iter(expected)
    while some := list(islice(given, AT_ONCE)):
        named = [mark(id_bytes(one)) for one in some]
        fitting = [i for i, found in enumerate(named) if found is not None]
        wanted = np.array([named[i] for i in fitting], dtype=there.dtype)
        hit = np.isin(wanted, there)
        used[np.searchsorted(there, wanted[hit])] = True
        known = np.zeros(len(some), dtype=bool)
        known[np.array(fitting, dtype=np.int64)[hit]] = True
        missing = [some[i] for i in np.flatnonzero(~known)]
        lost += len(missing)
        examples += missing[: LISTED - len(examples)]
    findings = []
    if lost:
        names = ", ".join(str(one)[:80] for one in examples)
        what = f"{lost} of the ids asked for are not in {sink.topic}: {names}{' ...' if lost > len(examples) else '.'}"
        findings.append(Finding("lost", what, "", topic=sink.topic, records=lost))
    aliens = np.flatnonzero(~used[np.searchsorted(there, marks)])
    return (lost, findings), (len(aliens), _aliens(sink, aliens))


def check_lost(sink: Ids, source: Ids, due: Mapping[int, int], *, certain: bool) -> tuple[Checked, list[Finding]]:
    """Ids of the source that are not in the sink; and those of which it cannot be told whether they are still to come.

    ``due``: up to where the source must be in the sink. Without certainty about it, what is missing behind the last
    record that was delivered of its partition may be on its way.
    """
    import numpy as np

    marks, partitions, offsets = source.arrays()
    delivered = np.isin(marks, sink.arrays()[0])
    missing = ~delivered
    late = np.zeros(len(marks), dtype=bool)
    for partition in np.unique(partitions):
        mine = partitions == partition
        missing &= ~(mine & (offsets >= due.get(int(partition), 0)))
        if not certain:
            newest = offsets[mine & delivered].max(initial=-1)
            late |= mine & missing & (offsets > newest)
    lost = np.flatnonzero(missing & ~late)
    helps = "find out which run of the job read it, and whether its output was committed"
    findings = _listed("lost", source, lost, lambda _: "has no record of its id in the sink", helps)
    waiting = []
    if late.any():
        waiting.append(
            Finding(
                "not_there_yet",
                f"{int(late.sum())} record(s) at the end of {source.topic} are not in {sink.topic}: lost, or still to come.",
                "name the consumer group of the job that writes the sink, or verify again when it has caught up",
                topic=source.topic,
                records=int(late.sum()),
                violation=False,
            )
        )
    return (len(lost), findings), waiting


def check_aliens(sink: Ids, source: Ids) -> Checked:
    """Ids of the sink that are not in the source."""
    import numpy as np

    aliens = np.flatnonzero(~np.isin(sink.arrays()[0], source.arrays()[0]))
    return len(aliens), _aliens(sink, aliens)


def _aliens(sink: Ids, which: Any) -> list[Finding]:
    return _listed(
        "alien", sink, which, lambda _: "has an id that is not in the source", "another producer writes to the sink"
    )


def _listed(kind: str, ids: Ids, which: Any, words: Callable[[int], str], helps: str) -> list[Finding]:
    """A finding for each of the first records, and one for the rest."""
    findings = []
    for index in which[:LISTED]:
        partition, offset = ids.place(index)
        what = f"The record at {_at(ids.topic, (partition, offset))} {words(int(index))}."
        findings.append(Finding(kind, what, helps, None, None, ids.topic, partition, offset, 1))
    if (left := len(which) - LISTED) > 0:
        findings.append(Finding(kind, f"{left} more record(s) of this kind.", helps, topic=ids.topic, records=left))
    return findings


def _at(topic: str, place: Place) -> str:
    return f"{topic}-{place[0]} offset {place[1]}"
