"""Several processes read one sink: they find what one finds, tell how far they are, and leave nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from airflow_ckpt.verify import readers
from airflow_ckpt.verify.sink_scan import Boundaries, ScanStuck, scan
from tests.kafka_io import produce
from tests.waiting import wait_for

pytestmark = pytest.mark.integration

PARTITIONS = 3
RECORDS = 6_000


@pytest.fixture
def written(kafka: Any, topics: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[int, int]]:
    """A topic that is worth two processes, and where its partitions end."""
    monkeypatch.setattr(readers, "RECORDS_EACH", RECORDS // 3)
    monkeypatch.setattr(readers, "_processors", lambda: 2)
    topic, config = topics("sink", PARTITIONS), kafka.client_config()
    produce(config, topic, [(str(n % 97) if n % 5 else None, None if n % 7 == 0 else f"v{n}") for n in range(RECORDS)])
    from airflow_ckpt.kafka.offsets import admin_client, ends_of

    found = ends_of(admin_client(config), topic)
    assert found is not None
    return topic, dict(found.stable)


def own_readers() -> list[psutil.Process]:
    return [p for p in psutil.Process().children() if "airflow_ckpt.verify.readers" in p.cmdline()]


def boundaries(ends: dict[int, int]) -> Boundaries:
    """The first batch begins after some records, so that there are also some of no batch."""
    return Boundaries({p: [end // 10, end // 2, end // 2] for p, end in ends.items()}, [1, 2, 2])


def test_two_processes_find_what_one_finds(
    kafka: Any, written: tuple[str, dict[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, ends = written
    start = {p: p for p in ends}
    alone = scan(kafka.client_config(), topic, start, ends, boundaries(ends))
    seen: list[tuple[int, int]] = []
    started: list[readers._Reader] = []
    reader = readers._Reader

    def begin(order: str) -> readers._Reader:
        started.append(reader(order))
        return started[-1]

    monkeypatch.setattr(readers, "_Reader", begin)
    together = readers.scan_sums(
        kafka.client_config(), topic, start, ends, boundaries(ends), lambda done, total: seen.append((done, total))
    )
    assert len(started) == 2, "the range was read in this process"
    assert together.batches == alone.batches
    assert together.records == alone.records == RECORDS - sum(start.values())
    assert set(alone.batches) == {None, 0, 2}
    assert {total for _, total in seen} == {sum(ends.values()) - sum(start.values())}
    assert own_readers() == []


def test_secrets_are_not_in_the_process_list_and_a_killed_reader_is_no_clean_scan(
    kafka: Any, written: tuple[str, dict[int, int]]
) -> None:
    topic, ends = written
    # One offset more than there is: the readers wait for it.
    waiting = {p: end + 1 for p, end in ends.items()}
    config = {**kafka.client_config(), "sasl.password": "hunter2hunter2"}
    failures: list[BaseException] = []

    def run() -> None:
        try:
            readers.scan_sums(config, topic, {}, waiting, boundaries(ends))
        except ScanStuck as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: len(own_readers()) == 2, "both readers to run")
    for reader in own_readers():
        assert "hunter2hunter2" not in " ".join([*reader.cmdline(), *reader.environ().values()])
    own_readers()[0].kill()
    thread.join(30)
    assert not thread.is_alive()
    assert [str(error) for error in failures] == ["A process that read the sink ended with exit code -9."]
    assert own_readers() == []


def test_what_a_reader_cannot_read_is_said_in_its_words(kafka: Any, written: tuple[str, dict[int, int]]) -> None:
    topic, ends = written
    beyond = dict.fromkeys(ends, RECORDS * 10)
    with pytest.raises(ScanStuck, match=r"The sink cannot be read: .*(out of range|reset)"):
        readers.scan_sums(kafka.client_config(), topic, beyond, dict.fromkeys(ends, RECORDS * 20), boundaries(ends))
    assert own_readers() == []
