"""The commands for a stream: verify, ledger and stop, as a person or a script calls them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ckpt_stream.protocol.ledger.ledger_record import ledger_topic
from tests.support.kafka_io import recreate_topic
from tests.support.streams import StreamUnderTest, copy
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

Make = Callable[..., StreamUnderTest]


def cli(*words: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).parent / "airflow-ckpt"
    return subprocess.run([str(command), *words], capture_output=True, text=True, timeout=120)


def verify(stream: StreamUnderTest, *more: str) -> subprocess.CompletedProcess[str]:
    where = ("--bootstrap", str(stream.kafka["bootstrap.servers"]), "--checkpoint", str(stream.checkpoint))
    return cli("verify", stream.sink, "--sink-id", stream.name, "--group", stream.name, *where, *more)


def test_verify_has_an_exit_code_each_for_clean_violated_and_unknown(spark: Any, stream: Make, tmp_path: Path) -> None:
    under_test = stream(partitions=2, max_offsets_per_batch=20)
    assert verify(under_test, "--json").returncode == 2, "a stream that never ran"
    under_test.feed(*map(str, range(50)))
    under_test.drive(spark, copy)
    report = tmp_path / "report.html"
    clean = verify(under_test, "--json", "--html", str(report))
    assert clean.returncode == 0, clean.stderr
    document = json.loads(clean.stdout)
    names = ("verdict", "source_records", "sink_committed", "lost", "duplicated", "torn", "alien", "findings")
    assert [document[n] for n in names] == ["clean", 50, 50, 0, 0, 0, 0, []]
    assert "<svg" in report.read_text()
    assert "CLEAN" in verify(under_test).stdout
    from tests.support.kafka_io import produce

    produce(under_test.kafka, under_test.sink, [("k", "from another producer")])
    violated = verify(under_test)
    assert violated.returncode == 1
    assert "VIOLATED" in violated.stdout
    unreachable = cli("verify", under_test.sink, "--bootstrap", "127.0.0.1:1")
    assert unreachable.returncode == 2
    assert (unreachable.stdout, "not verified" in unreachable.stderr) == ("", True)


def test_a_lost_ledger_can_be_rebuilt_and_the_stream_goes_on(spark: Any, stream: Make, admin: AdminClient) -> None:
    under_test = stream(lanes=2)
    under_test.feed("a", "b")
    under_test.drive(spark, copy)
    topic = ledger_topic(under_test.name)
    admin.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in admin.list_topics(timeout=10).topics, "the ledger to be gone")
    under_test.feed("c")
    assert under_test.drive(spark, copy)[0] == 1
    bootstrap = ("--bootstrap", str(under_test.kafka["bootstrap.servers"]))
    rebuilt = cli(
        "ledger", "rebuild", under_test.name, "--checkpoint", str(under_test.checkpoint), "--sink", under_test.sink,
        "--lanes", "2", *bootstrap,
    )  # fmt: skip
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert "2 lane(s) anchored at batch 0" in rebuilt.stdout
    assert under_test.drive(spark, copy)[0] == 0
    assert under_test.values() == ["a", "b", "c"]
    shown = json.loads(cli("ledger", "show", under_test.name, "--json", *bootstrap).stdout)
    assert [lane["batch"] for lane in shown["lanes"]] == [1, 1]


def test_a_sink_topic_made_again_can_be_accepted(spark: Any, stream: Make) -> None:
    under_test = stream()
    under_test.feed("a")
    under_test.drive(spark, copy)
    recreate_topic(under_test.kafka, under_test.sink)
    under_test.feed("b")
    done = cli(
        "ledger", "rebuild", under_test.name, "--checkpoint", str(under_test.checkpoint), "--sink", under_test.sink,
        "--bootstrap", str(under_test.kafka["bootstrap.servers"]),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert under_test.drive(spark, copy)[0] == 0
    assert under_test.values() == ["b"]


def test_a_ledger_is_reset_only_with_yes(spark: Any, stream: Make) -> None:
    under_test = stream()
    under_test.feed("a")
    under_test.drive(spark, copy)
    words = ("ledger", "reset", under_test.name, "--bootstrap", str(under_test.kafka["bootstrap.servers"]))
    asked = cli(*words)
    assert asked.returncode == 1
    assert "--yes" in asked.stderr
    assert under_test.ledger()
    assert cli(*words, "--yes").returncode == 0
    gone = cli("ledger", "show", *words[2:])
    assert gone.returncode == 1
    assert "does not exist" in gone.stderr


def test_stop_ends_a_running_stream(spark: Any, stream: Make) -> None:
    under_test = stream()
    outcome: list[tuple[int, str]] = []
    thread = threading.Thread(target=lambda: outcome.append(under_test.drive(spark, copy, drain=False)))
    thread.start()
    wait_for(lambda: under_test.runs() and under_test.runs()[-1].state == "RUNNING", "the stream to run")
    stopped = cli("stop", str(under_test.checkpoint), "--reason", "a test", "--json")
    thread.join(60)
    assert stopped.returncode == 0, stopped.stderr
    assert json.loads(stopped.stdout)["state"] == "STOPPED"
    assert outcome[0][0] == 0
    again = cli("stop", str(under_test.checkpoint))
    assert (again.returncode, "STOPPED" in again.stdout) == (0, True)


def test_stop_on_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    ended = cli("stop", str(tmp_path))
    assert ended.returncode == 1
    assert str(tmp_path) in ended.stderr
