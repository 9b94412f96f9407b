"""The state of a stream: its operators, and how much they keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.checkpoint.state import StateOperator, read_state

pytestmark = pytest.mark.unit


def with_state(tmp_path: Path, files: dict[str, str]) -> FsspecFiles:
    for name, text in files.items():
        (tmp_path / "state" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "state" / name).write_text(text)
    return FsspecFiles(str(tmp_path))


STORES = '{"operatorInfo":{"operatorId":0,"operatorName":"%s"},"stateStoreInfo":[%s]}'


def test_the_state_of_an_aggregation_is_weighed(tmp_path: Path) -> None:
    store = '{"storeName":"default","numColsPrefixKey":0,"numPartitions":2}'
    metadata = "v1\n" + STORES % ("stateStoreSave", store)
    texts = {"0/_metadata/metadata": metadata, "0/0/_metadata/schema": "12345"}
    texts |= {
        f"0/{partition}/{name}": "1234567890" for partition in (0, 1) for name in ("9.delta", "10.delta", "9.snapshot")
    }
    found = read_state(with_state(tmp_path, texts))
    size = len(metadata) + 5 + 60
    assert found == (StateOperator(0, "stateStoreSave", ("default",), 2, 10, size=size, files=8),)


def test_the_stores_of_a_join_and_the_files_of_rocksdb_are_known_too(tmp_path: Path) -> None:
    texts = {
        "1/0/left-keyToNumValues/4.delta": "",
        "1/0/right-keyToNumValues/5_0c1a.delta": "",
        "0/0/7_ab12.zip": "",
        "0/0/8_ab12.changelog": "",
        "0/0/SSTs/000123-x.sst": "",
        "0/_metadata/v2/0": "v2\n" + STORES % ("old", ""),
        "0/_metadata/v2/10": "v2\n" + STORES % ("transformWithStateExec", '{"storeName":"default","numPartitions":5}'),
        "0/_metadata/v2/9": "v2\n" + STORES % ("older", ""),
    }
    rocks, join = read_state(with_state(tmp_path, texts))
    assert (rocks.name, rocks.stores, rocks.version) == ("transformWithStateExec", ("default",), 8)
    assert (join.name, join.stores, join.version) == (None, ("left-keyToNumValues", "right-keyToNumValues"), 5)


@pytest.mark.parametrize(
    "text", ["", "v1", "v1\n{", "v1\n5", 'v1\n{"operatorInfo":5}', 'v1\n{"stateStoreInfo":{}}', "v9\nx"]
)
def test_an_unreadable_description_of_an_operator_costs_only_its_name(tmp_path: Path, text: str) -> None:
    found = read_state(
        with_state(tmp_path, {"0/_metadata/metadata": text, "0/0/3.delta": "x", ".x.crc": "", "y/z": ""})
    )
    assert [(one.name, one.partitions, one.version) for one in found] == [(None, 1, 3)]


def test_a_stream_without_state_has_none(tmp_path: Path) -> None:
    assert read_state(FsspecFiles(str(tmp_path))) == ()
