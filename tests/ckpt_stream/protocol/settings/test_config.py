"""The stream's document: a refusal names the setting that is wrong, and never repeats a secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ckpt_stream.errors import ConfigError
from ckpt_stream.protocol.settings.config import LONGEST_SINK_ID, StreamConfig, from_json
from ckpt_stream.protocol.settings.input_names import SECRETS_ENVIRONMENT, SECRETS_PROPERTY
from ckpt_stream.protocol.settings.stream_settings import MAX_LANES

pytestmark = pytest.mark.unit

MINIMUM: dict[str, Any] = {
    "name": "orders",
    "checkpoint": "/data/orders",
    "source": ["orders-in"],
    "sink": "orders-out",
    "kafka": {"bootstrap.servers": "localhost:9092"},
}


def document(**changes: Any) -> str:
    """The smallest document with changes; ``...`` leaves a name out."""
    return json.dumps({name: value for name, value in {**MINIMUM, **changes}.items() if value is not ...})


def test_the_smallest_document_is_enough_and_is_exactly_once() -> None:
    config = from_json(document())
    assert (config.sink_id, config.group) == ("orders", "orders")
    assert (config.guarantee, config.lanes, config.start) == ("exactly_once", 1, "group")
    assert (config.offset_mirror, config.malformed, config.transaction_timeout) == ("on_checkpoint", "skip", 60.0)
    assert (config.ledger_history, config.batch_timeout, config.heartbeat) == (1000, 600.0, 5.0)
    assert (config.drain, config.include_headers, config.trigger_interval, config.min_pause) == (False, False, 0, 0)
    assert config.source == ("orders-in",)


def test_sink_id_and_group_may_differ_from_the_name() -> None:
    config = from_json(document(sink_id="other", group="third"))
    assert (config.name, config.sink_id, config.group) == ("orders", "other", "third")


@pytest.mark.parametrize("source", ["orders-in", ["orders-in"]])
def test_a_single_source_may_be_a_text_or_a_list(source: Any) -> None:
    assert from_json(document(source=source)).source == ("orders-in",)


@pytest.mark.parametrize("source", [..., None, []])
def test_a_pattern_stands_for_the_source(source: Any) -> None:
    config = from_json(document(source=source, source_pattern="orders-in-.*"))
    assert (config.source, config.source_pattern) == ((), "orders-in-.*")


def test_with_a_pattern_offsets_may_name_any_topic() -> None:
    config = from_json(document(source=..., source_pattern="in-.*", stop_at={"in-7": {"0": 5}}))
    assert config.stop_at == {"in-7": {"0": 5}}


def test_partitions_given_as_numbers_in_python_are_those_of_spark() -> None:
    config = StreamConfig(**MINIMUM, start="explicit", start_offsets={"orders-in": {0: 5, "1": -2}})  # type: ignore[dict-item]
    assert config.start_offsets == {"orders-in": {"0": 5, "1": -2}}


@pytest.mark.parametrize(
    "changes",
    [
        {"start": "timestamp", "start_timestamp_ms": 0},
        {"start": "explicit", "start_offsets": {"orders-in": {"0": -1}}},
        {"start": "ledger"},
        {"lanes": MAX_LANES},
        {"sink_id": "x" * LONGEST_SINK_ID},
        {"malformed": "dead_letter", "dead_letter_topic": "wrong"},
        {"max_offsets_per_batch": 1, "min_pause": 0.5, "trigger_interval": 5, "drain": True},
        {"stop_at": {"orders-in": {"0": 0}}, "token": "a.b_c-1"},
        {"guarantee": "at_least_once", "output_mode": "update", "audit": "record"},
        {
            "transaction_timeout": 1,
            "batch_timeout": 1,
            "ledger_history": 2,
            "heartbeat": 0.1,
            "offset_mirror_period": 0,
        },
    ],
)
def test_what_is_at_the_limit_is_allowed(changes: dict[str, Any]) -> None:
    config = from_json(document(**changes))
    assert {name: getattr(config, name) for name in changes} == changes


#: Changes to the smallest document, and what the refusal must name: the setting, and the value or the choices.
REFUSED: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"name": ...}, ("name",)),
    ({"checkpoint": ..., "sink": ...}, ("checkpoint, sink",)),
    ({"kafka": ...}, ("kafka",)),
    ({"name": ""}, ("'name'",)),
    ({"checkpoint": ""}, ("'checkpoint'",)),
    ({"sink": ""}, ("'sink'",)),
    ({"kafka": {}}, ("'bootstrap.servers'",)),
    ({"kafka": {"bootstrap.servers": ""}}, ("'bootstrap.servers'",)),
    ({"lains": 3, "nam": 1}, ("lains, nam",)),
    # What the stream reads and writes
    ({"source": ...}, ("source", "source_pattern")),
    ({"source_pattern": "x.*"}, ("source", "source_pattern")),
    ({"source": ["a", "orders-out"]}, ("'orders-out'",)),
    ({"source": ..., "source_pattern": "(["}, ("source_pattern='(['",)),
    ({"source": ..., "source_pattern": "orders.*"}, ("orders-out, orders.ledger",)),
    ({"source": ..., "source_pattern": "w.*", "dead_letter_topic": "wrong"}, ("'w.*'", "wrong")),
    ({"malformed": "dead_letter"}, ("malformed", "dead_letter_topic")),
    ({"dead_letter_topic": "orders-out"}, ("dead-letter", "'orders-out'")),
    ({"dead_letter_topic": "orders-in"}, ("dead-letter", "'orders-in'")),
    ({"sink": "orders.ledger"}, ("'orders.ledger'", "sink_id")),
    ({"source": "orders.ledger"}, ("'orders.ledger'", "sink_id")),
    ({"dead_letter_topic": "orders.ledger"}, ("'orders.ledger'", "sink_id")),
    ({"name": "my orders"}, ("sink_id='my orders'",)),
    ({"sink_id": "a/b"}, ("sink_id='a/b'",)),
    ({"sink_id": "x" * (LONGEST_SINK_ID + 1)}, ("sink_id", "242")),
    ({"token": "scheduled__2026-01-01T00:00:00"}, ("token='scheduled__2026-01-01T00:00:00'",)),
    # Choices
    ({"guarantee": "at_most_once"}, ("guarantee='at_most_once'", "exactly_once, at_least_once")),
    ({"start": "now"}, ("start='now'", "group, earliest, latest, timestamp, explicit, ledger")),
    ({"offset_mirror": "on_commit"}, ("offset_mirror='on_commit'", "on_checkpoint, periodic, disabled")),
    ({"malformed": "ignore"}, ("malformed='ignore'", "skip, dead_letter, fail")),
    ({"output_mode": "upsert"}, ("output_mode='upsert'", "append, update, complete")),
    ({"audit": "all"}, ("audit='all'", "none, record")),
    # Start positions
    ({"start": "timestamp"}, ("start='timestamp'", "start_timestamp_ms")),
    ({"start": "timestamp", "start_timestamp_ms": "noon"}, ("start_timestamp_ms='noon'",)),
    ({"start": "timestamp", "start_timestamp_ms": -1}, ("start_timestamp_ms=-1",)),
    ({"start": "timestamp", "start_timestamp_ms": 1.5}, ("start_timestamp_ms=1.5",)),
    ({"start": "explicit"}, ("start='explicit'", "start_offsets")),
    ({"start": "explicit", "start_offsets": {"orders-inn": {"0": 5}}}, ("'orders-inn'", "(orders-in)")),
    ({"start": "explicit", "start_offsets": {"orders-in": 5}}, ("start_offsets", "{topic: {partition: offset}}")),
    ({"start": "explicit", "start_offsets": {"orders-in": {"0": "5"}}}, ("start_offsets", "orders-in-0", "'5'")),
    ({"start": "explicit", "start_offsets": {"orders-in": {"0": -3}}}, ("start_offsets", "orders-in-0", "-3", "-2")),
    ({"start": "explicit", "start_offsets": {"orders-in": {"first": 3}}}, ("start_offsets", "orders-in-first", "3")),
    ({"start": "ledger", "guarantee": "at_least_once"}, ("start='ledger'", "guarantee='exactly_once'")),
    ({"stop_at": {"other": {"0": 5}}}, ("stop_at", "'other'")),
    ({"stop_at": {"orders-in": {"0": -1}}}, ("stop_at", "orders-in-0", "-1", "from 0")),
    ({"stop_at": {"orders-in": {"0": True}}}, ("stop_at", "orders-in-0", "True")),
    # Numbers
    ({"lanes": 0}, ("lanes=0", "whole", "1", "1024")),
    ({"lanes": MAX_LANES + 1}, ("lanes=1025", "1024")),
    ({"lanes": 2.5}, ("lanes=2.5", "whole")),
    ({"lanes": "3"}, ("lanes='3'",)),
    ({"lanes": True}, ("lanes=True",)),
    ({"lanes": None}, ("lanes=None",)),
    ({"transaction_timeout": 0.5}, ("transaction_timeout=0.5", "1")),
    ({"transaction_timeout": float("inf")}, ("transaction_timeout=inf",)),
    ({"batch_timeout": 0}, ("batch_timeout=0",)),
    ({"batch_timeout": float("nan")}, ("batch_timeout=nan",)),
    ({"ledger_history": 1}, ("ledger_history=1", "2")),
    ({"ledger_history": 2.5}, ("ledger_history=2.5", "whole")),
    ({"min_pause": -1}, ("min_pause=-1",)),
    ({"trigger_interval": -1}, ("trigger_interval=-1",)),
    ({"offset_mirror_period": -1}, ("offset_mirror_period=-1",)),
    ({"offset_mirror_period": "often"}, ("offset_mirror_period='often'",)),
    ({"heartbeat": 0}, ("heartbeat=0", "0.1")),
    ({"max_offsets_per_batch": 0}, ("max_offsets_per_batch=0",)),
    ({"max_offsets_per_batch": 1.5}, ("max_offsets_per_batch=1.5", "whole")),
    # Types
    ({"drain": "false"}, ("drain", "true or false", "str")),
    ({"accepted_loss": True}, ("accepted_loss", "bool")),
    ({"accepted_loss": [{"topic": "a", "partition": 0}]}, ("accepted_loss", "topic, partition, start and end")),
    ({"accepted_loss": [{"topic": "a", "partition": 0, "start": -1, "end": None}]}, ("accepted_loss", "'start': -1")),
    ({"accepted_loss": [{"topic": "a", "partition": 0, "start": True, "end": 2}]}, ("accepted_loss", "'start': True")),
    ({"include_headers": 1}, ("include_headers", "int")),
    ({"name": 5}, ("name", "int")),
    ({"group": ["g"]}, ("group", "list")),
    ({"dead_letter_topic": 5}, ("dead_letter_topic", "int")),
    ({"kafka": ["bootstrap.servers"]}, ("kafka", "list")),
    ({"kafka": "localhost:9092"}, ("kafka", "str")),
    ({"stop_at": [1]}, ("stop_at", "list")),
    ({"start_offsets": 5}, ("start_offsets", "int")),
    ({"source_options": ["a"]}, ("source_options", "list")),
    ({"options": "a=b"}, ("options", "str")),
    ({"source": {"orders-in": 1}}, ("source", "dict")),
    ({"source": [5]}, ("source",)),
    ({"source": [""]}, ("source",)),
]


@pytest.mark.parametrize(("changes", "named"), REFUSED, ids=[" ".join(map(str, named)) for _, named in REFUSED])
def test_what_cannot_work_is_refused_by_name(changes: dict[str, Any], named: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refusal:
        from_json(document(**changes))
    assert [value for value in named if value not in str(refusal.value)] == []
    assert refusal.value.restart_may_help is False


@pytest.mark.parametrize(("text", "words"), [("", "not JSON"), ("{", "not JSON"), ("[1]", "must be a JSON object")])
def test_what_is_no_document_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_json(text)


@pytest.mark.parametrize("place", ["kafka", "source_options"])
@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.key.pem",
        "sasl.oauthbearer.client.secret",
        "sasl.jaas.config",
        "kafka.sasl.jaas.config",
        "kafka.ssl.keystore.key",
        "SASL.Password",
    ],
)
def test_a_secret_in_the_document_is_refused_by_name_with_the_right_places_and_without_its_value(
    place: str, name: str
) -> None:
    settings = {**MINIMUM.get(place, {}), name: "hunter2"}
    with pytest.raises(ConfigError) as refusal:
        from_json(document(**{place: settings}))
    message = str(refusal.value)
    assert f"({name})" in message
    assert SECRETS_PROPERTY in message
    assert SECRETS_ENVIRONMENT in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    "kafka",
    [["hunter2"], "hunter2", {"sasl.password": "hunter2"}, {"x": "hunter2"}],
    ids=["list", "text", "secret", "?"],
)
def test_no_value_of_a_kafka_setting_is_ever_repeated_in_a_message(kafka: Any) -> None:
    with pytest.raises(ConfigError) as refusal:
        from_json(document(kafka=kafka))
    assert "hunter2" not in str(refusal.value)
