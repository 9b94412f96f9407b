"""Spark's two checkpoint logs in every known version; whatever else a file holds, the error has one name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_stream.errors import CheckpointLogError
from ckpt_stream.protocol.checkpoint.checkpoint_log import (
    RESTORE,
    CommitLog,
    parse_commit,
    parse_initial_offsets,
    parse_metadata,
    parse_offsets,
    with_offsets,
)

pytestmark = pytest.mark.unit

#: As Spark 4.0.0 wrote them.
META = (
    '{"batchWatermarkMs":1700000000000,"batchTimestampMs":1794944818086,"conf":'
    '{"spark.sql.shuffle.partitions":"2","spark.sql.streaming.multipleWatermarkPolicy":"min"}}'
)
OFFSETS = f'v1\n{META}\n{{"orders":{{"0":5,"1":7}}}}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
METADATA = '{"id":"6f412f34-bb6b-4ac9-89f5-2feca2991dc9"}'
INITIAL = '\0v1\n{"orders":{"0":0,"1":3}}'

PARSERS: dict[Callable[[str], Any], str] = {
    parse_offsets: OFFSETS,
    parse_commit: COMMIT,
    parse_metadata: METADATA,
    parse_initial_offsets: INITIAL,
}


def test_version_1_of_the_offset_log_is_read() -> None:
    log = parse_offsets(OFFSETS)
    assert (log.version, log.watermark_ms, log.timestamp_ms) == ("v1", 1700000000000, 1794944818086)
    assert log.conf["spark.sql.shuffle.partitions"] == "2"
    assert log.sources == ({"orders": {"0": 5, "1": 7}},)
    assert log.kafka == {"orders": {"0": 5, "1": 7}}


def test_version_2_of_the_offset_log_names_its_sources() -> None:
    log = parse_offsets(f'v2\n{META}\n0:{{"orders":{{"0":5}}}}\npayments:{{"p:q":{{"0":1}}}}')
    assert log.version == "v2"
    assert log.kafka == {"orders": {"0": 5}, "p:q": {"0": 1}}


@pytest.mark.parametrize("text", [f'v1\n{META}\n-\n{{"a":{{"0":1}}}}', f'v2\n{META}\n0:-\n1:{{"a":{{"0":1}}}}'])
def test_a_void_source_has_no_offsets_and_the_others_keep_theirs(text: str) -> None:
    log = parse_offsets(text)
    assert log.sources == (None, {"a": {"0": 1}})
    assert log.kafka == {"a": {"0": 1}}


def test_several_sources_are_put_together_even_if_they_read_the_same_topic() -> None:
    log = parse_offsets(f'v1\n{META}\n{{"a":{{"0":1}}}}\n{{"a":{{"1":2}},"b":{{"0":3}}}}')
    assert log.kafka == {"a": {"0": 1, "1": 2}, "b": {"0": 3}}


@pytest.mark.parametrize("other", ["7", '"text"', '{"logOffset":3}', "[1,2]"])
def test_a_source_that_is_not_kafka_is_kept_and_has_no_kafka_offsets(other: str) -> None:
    log = parse_offsets(f'v1\n{META}\n{other}\n{{"a":{{"0":1}}}}')
    assert log.sources[0] == json.loads(other)
    assert log.kafka == {"a": {"0": 1}}


def test_a_batch_without_watermark_and_conf_is_read() -> None:
    log = parse_offsets('v1\n{"batchTimestampMs":5}\n{}')
    assert (log.watermark_ms, log.conf, log.kafka) == (0, {}, {})


def test_both_versions_of_the_commit_log_are_read() -> None:
    assert parse_commit('v1\n{"nextBatchWatermarkMs":5}') == CommitLog("v1", 5)
    ids = {"0": [["a"], ["b"]]}
    assert parse_commit(f'v2\n{{"nextBatchWatermarkMs":5,"stateUniqueIds":{json.dumps(ids)}}}') == CommitLog(
        "v2", 5, ids
    )
    assert parse_commit("v1\n{}") == CommitLog("v1", 0)


def test_the_query_and_the_initial_offsets_are_read() -> None:
    assert parse_metadata(METADATA + "\n") == "6f412f34-bb6b-4ac9-89f5-2feca2991dc9"
    assert parse_initial_offsets(INITIAL) == {"orders": {"0": 0, "1": 3}}


@pytest.mark.parametrize("parse", [parse_offsets, parse_commit, parse_initial_offsets])
@pytest.mark.parametrize("version", ["v3", "v0", "v99999999999"])
def test_another_version_is_refused_by_its_name_and_by_what_is_known(
    parse: Callable[[str, str], Any], version: str
) -> None:
    with pytest.raises(CheckpointLogError) as refusal:
        parse(f"{version}\n{META}\n{{}}", "offsets/7")
    assert (refusal.value.kind, refusal.value.file) == ("unknown_version", "offsets/7")
    assert all(words in refusal.value.found for words in (version, "v1"))
    assert "airflow-ckpt" in refusal.value.helps
    assert refusal.value.helps != RESTORE


def test_initial_offsets_of_another_version_are_not_taken_for_known_ones() -> None:
    with pytest.raises(CheckpointLogError, match="'v2'") as refusal:
        parse_initial_offsets(INITIAL.replace("v1", "v2"))
    assert refusal.value.kind == "unknown_version"


@pytest.mark.parametrize("parse", PARSERS)
def test_a_file_torn_at_any_place_is_refused(parse: Callable[[str], Any]) -> None:
    whole = PARSERS[parse]
    parse(whole)
    for length in range(len(whole)):
        with pytest.raises(CheckpointLogError):
            parse(whole[:length])


@pytest.mark.parametrize(
    ("parse", "text", "kind", "names"),
    [
        (parse_offsets, "", "empty", ""),
        (parse_offsets, "\n\n", "empty", ""),
        (parse_offsets, "garbage", "foreign", "'garbage'"),
        (parse_offsets, "v1", "torn", ""),
        (parse_offsets, f"v1\n{META}", "torn", ""),
        (parse_offsets, "v1\n[]\n{}", "foreign", ""),
        (parse_offsets, 'v1\n{"batchWatermarkMs":0}\n{}', "foreign", ""),
        (parse_offsets, 'v1\n{"batchTimestampMs":1,"conf":5}\n{}', "foreign", ""),
        (parse_offsets, 'v1\n{"batchTimestampMs":null}\n{}', "foreign", "'None'"),
        (parse_offsets, 'v1\n{"batchTimestampMs":1e999}\n{}', "foreign", "'inf'"),
        (parse_offsets, 'v1\n{"batchTimestampMs":true}\n{}', "foreign", "'True'"),
        (parse_offsets, f'v1\n{META}\n{{"a":{{"0":"5"}}}}', "foreign", "'5'"),
        (parse_offsets, f'v1\n{META}\n{{"a":{{"0":null}}}}', "foreign", "'None'"),
        (parse_offsets, f"v1\n{META}\n{{", "torn", "'{'"),
        (parse_offsets, f"v1\n{META}\n{'[' * 100_000}", "torn", ""),
        (parse_offsets, f'v2\n{META}\n{{"orders":{{"0":5}}}}', "torn", ""),
        (parse_offsets, f"v2\n{META}\n-", "torn", ""),
        (parse_commit, "", "empty", ""),
        (parse_commit, "v1", "torn", ""),
        (parse_commit, "v1\n5", "foreign", ""),
        (parse_commit, 'v1\n{"nextBatchWatermarkMs":[]}', "foreign", ""),
        (parse_commit, 'v2\n{"stateUniqueIds":5}', "foreign", ""),
        (parse_metadata, "", "empty", ""),
        (parse_metadata, "{}", "foreign", ""),
        (parse_metadata, '{"id":null}', "foreign", ""),
        (parse_metadata, '{"id":""}', "foreign", ""),
        (parse_metadata, "[1]", "foreign", ""),
        (parse_initial_offsets, "", "empty", ""),
        (parse_initial_offsets, "\0", "empty", ""),
        (parse_initial_offsets, "\0v1", "torn", ""),
        (parse_initial_offsets, "\0v1\n5", "foreign", ""),
        (parse_initial_offsets, '\0v1\n{"a":5}', "foreign", ""),
        (parse_initial_offsets, '\0v1\n{"a":{"0":"x"}}', "foreign", ""),
    ],
)
def test_a_torn_or_foreign_file_is_named_with_what_is_wrong_and_what_helps(
    parse: Callable[[str, str], Any], text: str, kind: str, names: str
) -> None:
    with pytest.raises(CheckpointLogError) as refusal:
        parse(text, "the/file")
    assert (refusal.value.kind, refusal.value.file) == (kind, "the/file")
    assert str(refusal.value).startswith("the/file ")
    assert names in refusal.value.found
    assert refusal.value.helps == RESTORE
    assert len(str(refusal.value)) < 400
    assert refusal.value.restart_may_help is False


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)
NAMES = st.sampled_from(
    ["batchWatermarkMs", "batchTimestampMs", "conf", "nextBatchWatermarkMs", "stateUniqueIds", "id", "a"]
)
NEARLY = st.builds(
    lambda version, meta, lines, colon: "\n".join([version, json.dumps(meta), *(colon + json.dumps(x) for x in lines)]),
    st.sampled_from(["v1", "v2", "\0v1", ""]),
    st.dictionaries(NAMES, st.integers() | JSON, max_size=4),
    st.lists(st.dictionaries(st.text(max_size=3), JSON, max_size=2) | JSON, max_size=3),
    st.sampled_from(["", "0:", ":"]),
)


@pytest.mark.parametrize("parse", PARSERS)
@given(text=st.text(max_size=100) | NEARLY | JSON.map(json.dumps))
@settings(max_examples=80, deadline=None)
def test_no_text_leads_to_another_error(parse: Callable[[str], Any], text: str) -> None:
    try:
        parsed = parse(text)
    except CheckpointLogError:
        return
    offsets = parsed.kafka if parse is parse_offsets else parsed if parse is parse_initial_offsets else {}
    assert all(type(offset) is int for partitions in offsets.values() for offset in partitions.values())


@pytest.mark.parametrize("text", [OFFSETS, f'v2\n{META}\n0:{{"orders":{{"0":5}}}}\n1:-'])
def test_an_entry_made_from_another_differs_in_offsets_and_time_alone(text: str) -> None:
    before, after = parse_offsets(text), parse_offsets(with_offsets(text, {"orders": {"0": 9}}, 17, 18))
    assert after.kafka == {"orders": {"0": 9}}
    assert (after.watermark_ms, after.timestamp_ms) == (17, 18)
    assert (after.version, after.conf, len(after.sources)) == (before.version, before.conf, len(before.sources))
