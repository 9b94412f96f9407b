"""Reads a large range of the sink with several processes, each some of the partitions: one Python keeps one core busy.

A reader gets its order through its standard input, since it holds the secrets of Kafka, and answers with lines of JSON:
how far it is, and at last what it has found. It ends by itself when nobody listens any more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import IO, Any, cast

from airflow_ckpt.verify.sink_scan import Boundaries, Progress, Scan, ScanStuck, Sums, scan
from ckpt_stream.sink_facts import scans_from_json, scans_to_json

#: A process is worth its start from this many records on.
RECORDS_EACH = 500_000
#: More would only wait for the broker.
MOST_READERS = 4
PROGRESS_SECONDS = 0.2


def scan_sums(
    kafka: Mapping[str, Any],
    topic: str,
    start: Mapping[int, int],
    end: Mapping[int, int],
    boundaries: Boundaries,
    progress: Progress | None = None,
    isolation: str = "read_committed",
) -> Scan:
    """As `scan`, without a look at each record: in this process, or in several at once if the range is large."""
    groups = divide({p: stop - start.get(p, 0) for p, stop in end.items() if start.get(p, 0) < stop}, _processors())
    try:
        orders = [_order(kafka, topic, start, end, boundaries, isolation, group) for group in groups]
    except TypeError:  # a setting that is a function stays in this process
        orders = []
    if len(orders) < 2:
        return scan(kafka, topic, start, end, boundaries, progress, None, isolation)
    begun = time.perf_counter()
    result = merge(topic, _read_all(orders, progress))
    result.seconds = time.perf_counter() - begun
    return result


def divide(sizes: Mapping[int, int], processors: int) -> list[list[int]]:
    """Partitions in as many groups as there shall be readers, of about the same size."""
    readers = max(1, min(processors, MOST_READERS, len(sizes), sum(sizes.values()) // RECORDS_EACH))
    groups: list[list[int]] = [[] for _ in range(readers)]
    loads = [0] * readers
    for partition in sorted(sizes, key=lambda p: -sizes[p]):
        lightest = loads.index(min(loads))
        groups[lightest].append(partition)
        loads[lightest] += sizes[partition]
    return groups


def merge(topic: str, scans: Sequence[Scan]) -> Scan:
    """What all have found together."""
    result = Scan(topic=topic, records=sum(found.records for found in scans))
    for found in scans:
        for turn, part in found.batches.items():
            result.batches.setdefault(turn, Sums()).merge(part)
    return result


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _order(
    kafka: Mapping[str, Any],
    topic: str,
    start: Mapping[int, int],
    end: Mapping[int, int],
    boundaries: Boundaries,
    isolation: str,
    partitions: Sequence[int],
) -> str:
    """The partitions are a list, since JSON would make text of their numbers."""
    begins = boundaries.offsets
    return json.dumps(
        {
            "kafka": dict(kafka),
            "topic": topic,
            "isolation": isolation,
            "formats": list(boundaries.formats),
            "partitions": [[p, start.get(p, 0), end[p], list(begins.get(p, ()))] for p in partitions],
        }
    )


class _Reader:
    """One process."""

    def __init__(self, order: str) -> None:
        self.read = 0
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the reader
        self._process = subprocess.Popen(
            [sys.executable, "-m", "airflow_ckpt.verify.readers"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True,
        )  # fmt: skip
        self._order = order

    def follow(self) -> Scan:
        """What it has found, when it is done."""
        answer = ""
        try:
            with cast(IO[str], self._process.stdin) as stdin:
                stdin.write(self._order)
            with cast(IO[str], self._process.stdout) as stdout:
                for answer in stdout:
                    if answer.startswith("["):
                        self.read = json.loads(answer)[0]
        except BrokenPipeError:
            pass  # its exit code and last words say more
        if self._process.wait() != 0:
            raise ScanStuck(self._last_words())
        return scans_from_json(answer)[0]

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read().strip().splitlines()
        return lines[-1] if lines else f"A process that read the sink ended with exit code {self._process.returncode}."

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def _read_all(orders: Sequence[str], progress: Progress | None) -> list[Scan]:
    total = sum(stop - start for order in orders for _, start, stop, _ in json.loads(order)["partitions"])
    readers: list[_Reader] = []
    with ThreadPoolExecutor(len(orders)) as pool:
        try:
            readers += [_Reader(order) for order in orders]
            answers = [pool.submit(reader.follow) for reader in readers]
            waiting = set(answers)
            while waiting:
                done, waiting = wait(waiting, timeout=PROGRESS_SECONDS, return_when=FIRST_EXCEPTION)
                for answer in done:
                    answer.result()
                if progress is not None:
                    progress(sum(reader.read for reader in readers), total)
            return [answer.result() for answer in answers]
        finally:
            for reader in readers:
                reader.end()


def main() -> None:
    """Read what the order names."""
    order = json.load(sys.stdin)
    last = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > PROGRESS_SECONDS:
            last = time.monotonic()
            print(json.dumps([done, total]), flush=True)

    begins = {p: offsets for p, _, _, offsets in order["partitions"]}
    try:
        found = scan(
            order["kafka"],
            order["topic"],
            {p: start for p, start, _, _ in order["partitions"]},
            {p: stop for p, _, stop, _ in order["partitions"]},
            Boundaries(begins, order["formats"]),
            tell,
            None,
            order["isolation"],
        )
    except ScanStuck as error:
        sys.exit(str(error))
    print(scans_to_json([found]), flush=True)


if __name__ == "__main__":
    main()
