"""The stream's document: what is wrong in it is said by name, and a secret is never repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ckpt_stream.config import (
    ENVIRONMENT,
    LONGEST_SINK_ID,
    MAX_LANES,
    SECRETS_ENVIRONMENT,
    SECRETS_PROPERTY,
    StreamConfig,
    find_document,
    from_json,
    kafka_settings,
)
from ckpt_stream.errors import ConfigError

pytestmark = pytest.mark.unit

MINIMUM: dict[str, Any] = {
    "name": "orders",
    "checkpoint": "/data/orders",
    "source": ["orders-in"],
    "sink": "orders-out",
    "kafka": {"bootstrap.servers": "localhost:9092"},
}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    monkeypatch.delenv(SECRETS_ENVIRONMENT, raising=False)


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


OUT_OF_PLACE: list[tuple[dict[str, Any], str]] = [
    ({"name": ...}, "lacks name"),
    ({"checkpoint": ..., "sink": ...}, "lacks checkpoint, sink"),
    ({"kafka": ...}, "lacks kafka"),
    ({"name": ""}, "lacks 'name'"),
    ({"checkpoint": ""}, "lacks 'checkpoint'"),
    ({"sink": ""}, "lacks 'sink'"),
    ({"kafka": {}}, "lack 'bootstrap.servers'"),
    ({"kafka": {"bootstrap.servers": ""}}, "lack 'bootstrap.servers'"),
    ({"lains": 3, "nam": 1}, "Unknown settings in the stream's configuration: lains, nam"),
    # What the stream reads and writes
    ({"source": ...}, "either source (topics) or source_pattern"),
    ({"source_pattern": "x.*"}, "either source (topics) or source_pattern"),
    ({"source": ["a", "orders-out"]}, "Source and sink are both 'orders-out'"),
    ({"source": ..., "source_pattern": "(["}, "source_pattern='([' is not a regular expression"),
    ({"source": ..., "source_pattern": "orders.*"}, "matches orders-out, orders.ledger"),
    ({"source": ..., "source_pattern": "w.*", "dead_letter_topic": "wrong"}, "matches wrong"),
    ({"malformed": "dead_letter"}, "needs dead_letter_topic"),
    ({"dead_letter_topic": "orders-out"}, "'orders-out' must be a topic of its own"),
    ({"dead_letter_topic": "orders-in"}, "'orders-in' must be a topic of its own"),
    ({"sink": "orders.ledger"}, "'orders.ledger' is the stream's ledger"),
    ({"source": "orders.ledger"}, "'orders.ledger' is the stream's ledger"),
    ({"dead_letter_topic": "orders.ledger"}, "'orders.ledger' is the stream's ledger"),
    ({"name": "my orders"}, "sink_id='my orders'"),
    ({"sink_id": "a/b"}, "sink_id='a/b'"),
    ({"sink_id": "x" * (LONGEST_SINK_ID + 1)}, "at most 242"),
    ({"token": "scheduled__2026-01-01T00:00:00"}, "part of a file's name"),
    # Choices
    ({"guarantee": "at_most_once"}, "guarantee='at_most_once' is none of exactly_once, at_least_once"),
    ({"start": "now"}, "start='now' is none of group, earliest, latest, timestamp, explicit, ledger"),
    ({"offset_mirror": "on_commit"}, "offset_mirror='on_commit' is none of on_checkpoint, periodic, disabled"),
    ({"malformed": "ignore"}, "malformed='ignore' is none of skip, dead_letter, fail"),
    ({"output_mode": "upsert"}, "output_mode='upsert' is none of append, update, complete"),
    ({"audit": "all"}, "audit='all' is none of none, record"),
    # Start positions
    ({"start": "timestamp"}, "start='timestamp' needs start_timestamp_ms"),
    ({"start": "timestamp", "start_timestamp_ms": "noon"}, "start_timestamp_ms='noon'"),
    ({"start": "timestamp", "start_timestamp_ms": -1}, "start_timestamp_ms=-1"),
    ({"start": "timestamp", "start_timestamp_ms": 1.5}, "start_timestamp_ms=1.5"),
    ({"start": "explicit"}, "start='explicit' needs start_offsets"),
    (
        {"start": "explicit", "start_offsets": {"orders-inn": {"0": 5}}},
        "'orders-inn', which is not in source (orders-in)",
    ),
    ({"start": "explicit", "start_offsets": {"orders-in": 5}}, "start_offsets must be of the form"),
    ({"start": "explicit", "start_offsets": {"orders-in": {"0": "5"}}}, "orders-in-0 the offset '5'"),
    ({"start": "explicit", "start_offsets": {"orders-in": {"0": -3}}}, "orders-in-0 the offset -3"),
    ({"start": "explicit", "start_offsets": {"orders-in": {"first": 3}}}, "orders-in-first the offset 3"),
    ({"start": "ledger", "guarantee": "at_least_once"}, "start='ledger' needs guarantee='exactly_once'"),
    ({"stop_at": {"other": {"0": 5}}}, "stop_at names the topic 'other'"),
    ({"stop_at": {"orders-in": {"0": -1}}}, "stop_at gives orders-in-0 the offset -1"),
    ({"stop_at": {"orders-in": {"0": True}}}, "stop_at gives orders-in-0 the offset True"),
    # Numbers
    ({"lanes": 0}, "lanes=0 must be a whole number of at least 1 and at most 1024"),
    ({"lanes": MAX_LANES + 1}, "lanes=1025"),
    ({"lanes": 2.5}, "lanes=2.5 must be a whole number"),
    ({"lanes": "3"}, "lanes='3'"),
    ({"lanes": True}, "lanes=True"),
    ({"transaction_timeout": 0.5}, "transaction_timeout=0.5 must be a number of at least 1"),
    ({"transaction_timeout": float("inf")}, "transaction_timeout=inf"),
    ({"batch_timeout": 0}, "batch_timeout=0"),
    ({"batch_timeout": float("nan")}, "batch_timeout=nan"),
    ({"ledger_history": 1}, "ledger_history=1 must be a whole number of at least 2"),
    ({"ledger_history": 2.5}, "ledger_history=2.5"),
    ({"min_pause": -1}, "min_pause=-1"),
    ({"trigger_interval": -1}, "trigger_interval=-1"),
    ({"offset_mirror_period": -1}, "offset_mirror_period=-1"),
    ({"offset_mirror_period": "often"}, "offset_mirror_period='often'"),
    ({"heartbeat": 0}, "heartbeat=0 must be a number of at least 0.1"),
    ({"max_offsets_per_batch": 0}, "max_offsets_per_batch=0"),
    ({"max_offsets_per_batch": 1.5}, "max_offsets_per_batch=1.5"),
    # Types
    ({"drain": "false"}, "drain must be true or false, not of type str"),
    ({"accepted_loss": True}, "accepted_loss must be a list of ranges, not of type bool"),
    ({"accepted_loss": [{"topic": "a", "partition": 0}]}, "an object with topic, partition, start and end"),
    ({"accepted_loss": [{"topic": "a", "partition": 0, "start": -1, "end": None}]}, "numbers from 0 on"),
    ({"accepted_loss": [{"topic": "a", "partition": 0, "start": True, "end": 2}]}, "numbers from 0 on"),
    ({"include_headers": 1}, "include_headers must be true or false, not of type int"),
    ({"name": 5}, "name must be a text, not of type int"),
    ({"group": ["g"]}, "group must be a text, not of type list"),
    ({"dead_letter_topic": 5}, "dead_letter_topic must be a text"),
    ({"kafka": ["bootstrap.servers"]}, "kafka must be an object of names and values, not of type list"),
    ({"kafka": "localhost:9092"}, "kafka must be an object of names and values, not of type str"),
    ({"stop_at": [1]}, "stop_at must be an object of names and values"),
    ({"start_offsets": 5}, "start_offsets must be an object of names and values"),
    ({"source_options": ["a"]}, "source_options must be an object of names and values"),
    ({"options": "a=b"}, "options must be an object of names and values"),
    ({"source": {"orders-in": 1}}, "source must be a topic or a list of topics, not of type dict"),
    ({"source": [5]}, "source must be a topic or a list of topics"),
    ({"source": [""]}, "source must be a topic or a list of topics"),
]


@pytest.mark.parametrize(("changes", "words"), OUT_OF_PLACE, ids=[words for _, words in OUT_OF_PLACE])
def test_what_cannot_work_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        from_json(document(**changes))
    assert words in str(refusal.value)
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


# Where the document comes from


def test_the_document_is_the_first_argument() -> None:
    assert find_document(["app.py", "{}"]) == "{}"


def test_the_document_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "stream.json"
    file.write_text('{"name": "ünïcode"}', encoding="utf-8")
    assert find_document(["app.py", f"@{file}"]) == '{"name": "ünïcode"}'


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read from '.*missing\.json'"):
        find_document(["app.py", f"@{tmp_path / 'missing.json'}"])
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="binary"):
        find_document(["app.py", f"@{tmp_path / 'binary'}"])


def test_without_an_argument_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, '{"a": 1}')
    assert find_document(["app.py"]) == '{"a": 1}'
    assert find_document(["app.py", "{}"]) == "{}"


def test_without_any_document_all_three_ways_are_named() -> None:
    with pytest.raises(ConfigError, match=f"first argument, as @file, or in the environment variable {ENVIRONMENT}"):
        find_document(["app.py"])


# Secrets


def test_secrets_are_added_to_the_settings_and_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    config = from_json(document(kafka={"bootstrap.servers": "b:1", "sasl.username": "document"}))
    monkeypatch.setenv(SECRETS_ENVIRONMENT, '{"sasl.password": "environment"}')
    settings = kafka_settings(config, '{"sasl.password": "property", "sasl.username": "property"}')
    assert settings == {"bootstrap.servers": "b:1", "sasl.username": "property", "sasl.password": "environment"}
    assert config.kafka == {"bootstrap.servers": "b:1", "sasl.username": "document"}


@pytest.mark.parametrize("text", [None, ""])
def test_without_secrets_the_settings_are_those_of_the_document(text: str | None) -> None:
    assert kafka_settings(from_json(document()), text) == MINIMUM["kafka"]


@pytest.mark.parametrize("text", ["hunter2", '"hunter2"', '["hunter2"]', '[["hunter2", 1]]', "5", "null"])
@pytest.mark.parametrize("place", [SECRETS_PROPERTY, SECRETS_ENVIRONMENT])
def test_secrets_that_are_no_object_are_refused_by_their_place_and_without_their_value(
    monkeypatch: pytest.MonkeyPatch, place: str, text: str
) -> None:
    if place == SECRETS_ENVIRONMENT:
        monkeypatch.setenv(SECRETS_ENVIRONMENT, text)
    with pytest.raises(ConfigError) as refusal:
        kafka_settings(from_json(document()), text if place == SECRETS_PROPERTY else None)
    assert place in str(refusal.value)
    assert "hunter2" not in str(refusal.value)
    assert refusal.value.__cause__ is None
