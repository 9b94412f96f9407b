"""A checkpoint in an object store: an S3 that answers on a port, read as Airflow reads it."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import fsspec
import pytest
from botocore.exceptions import ClientError

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.checkpoint.locations import for_airflow, open_files, readable
from airflow_ckpt.checkpoint.runs import current_run, read_run, run_names
from airflow_ckpt.checkpoint.state import read_state
from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.streams.driver_state import DriverState, Handle
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.streams.submit_intent import SubmitIntent
from airflow_ckpt.supervision.intent_files import write_intent
from airflow_ckpt.supervision.observing import look
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.protocol.checkpoint.checkpoint_reader import read_checkpoint
from ckpt_stream.protocol.run_files.record_files import STOP, now
from ckpt_stream.protocol.run_files.restart_history import RestartEntry, claim, read_history
from ckpt_stream.protocol.run_files.run_record import FINISHED, RUNNING, RunRecord
from ckpt_stream.protocol.run_files.stop_requests import asks_to_stop, stop_request

pytestmark = pytest.mark.integration

CHECKPOINT = "s3a://checkpoints/streams/orders"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def options(endpoint: str) -> dict[str, Any]:
    return {
        "key": "testing",
        "secret": "testing",
        "client_kwargs": {"endpoint_url": endpoint, "region_name": "us-east-1"},
    }


@pytest.fixture
def storage(options: dict[str, Any]) -> Iterator[Any]:
    """The store as another client of it, like Spark, sees it."""
    fs = fsspec.filesystem("s3", **options, use_listings_cache=False, skip_instance_cache=True)
    fs.call_s3("create_bucket", Bucket="checkpoints")
    yield fs
    fs.rm("checkpoints", recursive=True)


@pytest.fixture
def files(storage: Any, options: dict[str, Any]) -> FsspecFiles:
    return open_files(CHECKPOINT, options=options)


def put(storage: Any, name: str, text: str) -> None:
    storage.pipe_file(f"checkpoints/streams/orders/{name}", text.encode())


def put_batch(storage: Any, batch: int, *, committed: bool = True) -> None:
    end = json.dumps({"orders": {"0": 10 * (batch + 1)}})
    put(storage, f"offsets/{batch}", f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":5,"conf":{{}}}}\n{end}')
    if committed:
        put(storage, f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')


def test_a_checkpoint_in_s3_is_read_and_a_later_look_sees_what_came_since(storage: Any, files: FsspecFiles) -> None:
    assert [f.kind for f in read_checkpoint(files).findings] == ["no_checkpoint"]
    put(storage, "metadata", '{"id":"query-1"}')
    for batch in range(3):
        put_batch(storage, batch)
    first = read_checkpoint(files)
    assert (first.query_id, first.newest, first.committed, first.findings) == ("query-1", 2, 2, ())
    assert first.committed_offsets == {"orders": {"0": 30}}

    put_batch(storage, 3, committed=False)
    later = read_checkpoint(files)
    assert (later.in_doubt, later.committed, later.end) == (3, 2, {"orders": {"0": 40}})
    assert later.committed_offsets == {"orders": {"0": 30}}


def test_a_listing_of_more_than_one_page_is_read_to_its_end(storage: Any, files: FsspecFiles) -> None:
    # A page holds 1,000 names; the newest batch is the first of the second page.
    storage.pipe({f"checkpoints/streams/orders/offsets/{n}": b"v1" for n in range(1000, 2000)})
    put_batch(storage, 2000)
    found = read_checkpoint(files, with_metadata=False)
    assert (found.newest, found.committed, found.kept, found.findings) == (2000, 2000, 1001, ())


def test_state_in_s3_is_weighed(storage: Any, files: FsspecFiles) -> None:
    for partition in range(2):
        put(storage, f"state/0/{partition}/1.delta", "12345")
    (operator,) = read_state(files)
    assert (operator.partitions, operator.version, operator.size) == (2, 1, 10)


def test_a_run_record_in_s3_is_written_replaced_and_read(files: FsspecFiles) -> None:
    assert run_names(files) == []
    assert current_run(files) is None
    record = RunRecord(run="20260101T000000.000000-a", stream="orders")
    for state in (RUNNING, FINISHED):
        record.enter(state)
        files.write(record.path, record.to_json())
        assert read_run(files, record.run) == record
    assert run_names(files) == [record.run]
    assert current_run(files) == record


def test_a_stop_request_in_s3_reaches_the_run(files: FsspecFiles) -> None:
    record = RunRecord(run="20260101T000000.000000-a", stream="orders")
    assert not files.exists(STOP)
    files.write(STOP, stop_request("me", "a test", record.run))
    assert files.exists(STOP)
    text = files.read(STOP)
    assert text is not None
    assert asks_to_stop(text, record)


WRITES = 2000
RUN = "20260101T000000.000000-t1"


class LivingDriver:
    """A runner that knows that the driver lives."""

    kind = "process"

    def look(self, handle: Handle) -> DriverState:
        return DriverState(RUNNING, "it lives")


def looks_at_a_run_that_is_written_all_the_time(
    files: FsspecFiles, replace: Callable[[str, str], None], writes: int
) -> tuple[Counter[str], int]:
    """What a user is told about a healthy stream while its driver replaces its run record, and how often it was asked."""
    record = RunRecord(RUN, "orders", "t1", heartbeat_seconds=5)
    record.enter(RUNNING)
    record.heartbeat = now()
    files.write(record.path, record.to_json())
    # So long ago that a driver without a run record would be taken for one that does not get through its start.
    intent = SubmitIntent(
        "t1", "2026-01-01T00:00:00+00:00", "ann", "process", handle=Handle("process", "1", "t1").as_dict()
    )
    write_intent(files, intent)
    stream = Stream(name="orders", application="orders.py", checkpoint=CHECKPOINT, source="in", sink="out")
    sources = StreamAccess(stream, files, None, LivingDriver())  # type: ignore[arg-type]
    told: Counter[str] = Counter()
    written = threading.Event()

    def look_all_the_time() -> None:
        while not written.is_set():
            status = look(sources)
            told[f"{status.state} {status.run}"] += 1

    with ThreadPoolExecutor(1) as threads:
        reader = threads.submit(look_all_the_time)
        for number in range(writes):
            record.add_batch({"batch": number, "ended": now(), "input_rows": 10, "records": 10})
            record.heartbeat = now()
            replace(record.path, record.to_json())
        written.set()
        reader.result(60)
    return told, told.total()


def test_a_healthy_driver_is_never_called_anything_else_while_it_writes_its_record(
    storage: Any, files: FsspecFiles
) -> None:
    told, looks = looks_at_a_run_that_is_written_all_the_time(files, partial(put, storage), WRITES)
    assert set(told) == {f"RUNNING {RUN}"}
    assert looks > WRITES / 100


def test_a_driver_that_deletes_and_renames_is_called_stalled(storage: Any, files: FsspecFiles) -> None:
    """The control: what Spark's file manager does on S3, and what the reader above would have seen."""

    def delete_and_rename(name: str, text: str) -> None:
        path = f"checkpoints/streams/orders/{name}"
        storage.pipe_file(f"{path}.tmp", text.encode())
        storage.rm_file(path)
        storage.cp_file(f"{path}.tmp", path)
        storage.rm_file(f"{path}.tmp")

    told, _ = looks_at_a_run_that_is_written_all_the_time(files, delete_and_rename, 100)
    assert "STALLED None" in told


def test_of_two_tasks_that_claim_a_restart_in_s3_at_once_one_gets_it(
    files: FsspecFiles, options: dict[str, Any]
) -> None:
    rounds, workers = 40, [files, open_files(CHECKPOINT, options={**options, "skip_instance_cache": True})]
    together = threading.Barrier(2)

    def claim_each(worker: FsspecFiles) -> list[int | None]:
        got = []
        for n in range(rounds):
            together.wait(60)
            entry = RestartEntry(f"{n} of {id(worker)}", "a task", "FAILED", None, "away", None)
            got.append(claim(worker, entry, f"driver {n}").number)
        return got

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(claim_each, workers)
    assert [sorted(n for n in both if n) for both in zip(first, second, strict=True)] == [
        [n + 1] for n in range(rounds)
    ]
    assert [entry["after_token"] for entry in read_history(files)] == [f"driver {n}" for n in range(rounds)]


def test_a_file_that_is_in_s3_is_not_created(files: FsspecFiles) -> None:
    assert files.create("_ckpt/x.json", "first")
    assert not files.create("_ckpt/x.json", "second")
    assert files.read("_ckpt/x.json") == "first"


def test_an_s3_that_knows_no_conditions_is_asked_first(files: FsspecFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = files._fs.pipe_file

    def pipe_file(path: str, data: bytes, mode: str = "overwrite") -> None:
        if mode == "create":
            raise OSError("A header you provided implies functionality that is not implemented.") from ClientError(
                {"Error": {"Code": "NotImplemented"}}, "PutObject"
            )
        plain(path, data)

    monkeypatch.setattr(files._fs, "pipe_file", pipe_file)
    assert [files.create("_ckpt/x.json", text) for text in ("first", "second")] == [True, False]
    assert files.read("_ckpt/x.json") == "first"


def test_a_file_that_is_not_in_s3_is_none(files: FsspecFiles) -> None:
    assert files.read("metadata") is None
    assert files.names("offsets") == []
    assert files.sizes("state") == {}


def test_a_bucket_that_is_not_there_has_no_checkpoint(storage: Any, options: dict[str, Any]) -> None:
    found = read_checkpoint(open_files("s3a://no-such-bucket/a", options=options))
    assert [f.kind for f in found.findings] == ["no_checkpoint"]


def test_an_s3_that_does_not_answer_is_one_error_that_names_the_checkpoint(options: dict[str, Any]) -> None:
    settings = {"connect_timeout": 1, "read_timeout": 1, "retries": {"max_attempts": 0}}
    unreachable = {**options, "client_kwargs": {**options["client_kwargs"], "endpoint_url": "http://127.0.0.1:9"}}
    files = open_files(CHECKPOINT, options={**unreachable, "config_kwargs": settings})
    with pytest.raises(CkptError, match=CHECKPOINT) as refusal, readable(CHECKPOINT):
        read_checkpoint(files)
    assert refusal.value.kind == "unreadable"


def test_the_location_is_the_one_that_fsspec_knows() -> None:
    assert for_airflow(CHECKPOINT)[0] == "s3://checkpoints/streams/orders"
