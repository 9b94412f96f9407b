"""Sinks that another program writes, on a real broker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from airflow_ckpt.verify.foreign import verify_foreign
from airflow_ckpt.verify.verdict import CLEAN, UNKNOWN, VIOLATED
from tests.support.kafka_io import create_topic, produce
from tests.support.written_sink import kinds

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def orders(kafka: Any) -> tuple[dict[str, str], str, str]:
    """Twenty orders in a source, by key, and in a sink, by a place in the value."""
    settings = kafka.client_config()
    source, sink = create_topic(settings, "orders", 2), create_topic(settings, "foreign", 2)
    produce(settings, source, [(str(i), "order") for i in range(20)])
    produce(settings, sink, [(f"k{i}", order(i)) for i in range(20)])
    return settings, source, sink


def order(number: int) -> str:
    return json.dumps({"order": {"ids": [number]}, "text": "x"})


PATH = "$.order.ids[0]"


def test_a_sink_of_others_is_clean_against_its_source_and_as_a_sequence(orders: Any) -> None:
    settings, source, sink = orders
    hidden = Producer({**settings, "transactional.id": "foreign-aborted"})
    hidden.init_transactions()
    hidden.begin_transaction()
    hidden.produce(sink, order(3))
    hidden.flush()
    hidden.abort_transaction()
    verdict = verify_foreign(settings, sink, id_path=PATH, source=source, source_id_path="key", sequence=True)
    assert verdict.verdict == CLEAN, verdict.findings
    assert (verdict.depth, verdict.sink_committed, verdict.source_records) == ("foreign", 20, 20)
    assert (verdict.lost, verdict.duplicated, verdict.alien) == (0, 0, 0)


def test_duplicates_and_aliens_in_a_sink_of_others_are_found_with_their_place(orders: Any) -> None:
    settings, source, sink = orders
    produce(settings, sink, [(None, order(3)), (None, order(77))])
    verdict = verify_foreign(settings, sink, id_path=PATH, source=source, source_id_path="key")
    assert (verdict.verdict, verdict.duplicated, verdict.alien, verdict.lost) == (VIOLATED, 1, 1, 0)
    assert kinds(verdict) == {"duplicate", "alien"}
    assert all(f.topic == sink and f.offset is not None for f in verdict.findings)


def test_gaps_are_lost_where_the_group_has_committed_and_else_perhaps_late(orders: Any) -> None:
    from confluent_kafka import Consumer

    settings, source, sink = orders
    more = [(str(i), "order") for i in range(20, 26)]
    produce(settings, source, more)
    options: dict[str, Any] = {"id_path": PATH, "source": source, "source_id_path": "key"}
    late = verify_foreign(settings, sink, **options)
    assert (late.verdict, kinds(late), late.lost) == (UNKNOWN, {"not_there_yet"}, 0)
    group = f"writer-{sink}"
    with Consumer({**settings, "group.id": group}) as consumer:
        ends = [
            TopicPartition(source, p, consumer.get_watermark_offsets(TopicPartition(source, p), timeout=10)[1])
            for p in (0, 1)
        ]
        consumer.commit(offsets=ends, asynchronous=False)
    lost = verify_foreign(settings, sink, group=group, **options)
    assert (lost.verdict, kinds(lost), lost.lost) == (VIOLATED, {"lost"}, 6)
    assert {f.topic for f in lost.findings} == {source}
    holes = verify_foreign(settings, source, id_path="key", sequence=True)
    assert holes.verdict == CLEAN
    produce(settings, source, [("30", "order")])
    holes = verify_foreign(settings, source, id_path="key", sequence=True)
    assert (holes.verdict, holes.lost) == (VIOLATED, 4)
    assert re.findall(r"\d+", holes.findings[0].what) == ["4", "26", "29"]


def test_records_without_an_id_and_too_many_of_them_are_not_called_clean(orders: Any) -> None:
    settings, _, sink = orders
    wrong = verify_foreign(settings, sink, id_path="header:id")
    assert (wrong.verdict, kinds(wrong), wrong.findings[0].records) == (UNKNOWN, {"no_id"}, 20)
    many = verify_foreign(settings, sink, id_path=PATH, max_ids=10)
    assert (many.verdict, kinds(many)) == (UNKNOWN, {"too_many_ids"})
    assert kinds(verify_foreign(settings, "no-such-topic", id_path="key")) == {"no_topic"}


def test_the_command_verifies_a_sink_of_others(orders: Any) -> None:
    settings, source, sink = orders
    where = ["--bootstrap", settings["bootstrap.servers"], "--json", "--id", PATH]
    clean = _cli("verify", sink, *where, "--source", source, "--source-id", "key", "--sequence")
    assert clean.returncode == 0, clean.stderr
    assert json.loads(clean.stdout)["source_records"] == 20
    produce(settings, sink, [(None, order(3))])
    twice = _cli("verify", sink, *where)
    assert (twice.returncode, json.loads(twice.stdout)["duplicated"]) == (1, 1)


def _cli(*words: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).parent / "airflow-ckpt"
    return subprocess.run([str(command), *words], capture_output=True, text=True, timeout=60)
