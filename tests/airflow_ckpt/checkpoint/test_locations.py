"""One declared path, as Spark writes it and as Airflow reads it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest
import requests

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.checkpoint.locations import for_airflow, open_files, readable
from airflow_ckpt.exceptions import CkptError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "path", ["/data/checkpoints/a", "relative/a", "file:///data/a", "file:/data/a", r"C:\data\a", "C:/data/a"]
)
def test_a_local_path_stays_as_it_is(path: str) -> None:
    assert for_airflow(path, options={"auto_mkdir": True}) == (path, {"auto_mkdir": True})


def test_a_path_as_hadoop_writes_it_opens_the_same_folder(tmp_path: Path) -> None:
    roots = {open_files(f"{prefix}{tmp_path}").root for prefix in ("", "file:", "file://")}
    assert roots == {str(tmp_path)}


@pytest.mark.parametrize(
    ("declared", "seen"),
    [
        ("s3a://bucket/a/b", "s3://bucket/a/b"),
        ("s3n://bucket/a", "s3://bucket/a"),
        ("s3://bucket/a", "s3://bucket/a"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("abfs://box@account.dfs.core.windows.net/a", "abfs://box@account.dfs.core.windows.net/a"),
        ("abfss://box@account.dfs.core.windows.net/a", "abfs://box@account.dfs.core.windows.net/a"),
    ],
)
def test_an_object_store_gets_the_name_that_fsspec_knows_it_by(declared: str, seen: str) -> None:
    assert for_airflow(declared, options={"anon": True}) == (seen, {"anon": True})


@pytest.mark.parametrize(
    ("declared", "webhdfs", "options", "url", "storage"),
    [
        ("hdfs://nn:8020/a/b", None, {}, "webhdfs://nn:9870/a/b", {"host": "nn", "port": 9870}),
        ("hdfs://nn/a", None, {}, "webhdfs://nn:9870/a", {"host": "nn", "port": 9870}),
        ("hdfs://nn:8020/a", "http://web:50070", {}, "webhdfs://web:50070/a", {"host": "web", "port": 50070}),
        ("hdfs:///a", "http://web", {}, "webhdfs://web:9870/a", {"host": "web", "port": 9870}),
        ("hdfs:/a", "http://web", {}, "webhdfs://web:9870/a", {"host": "web", "port": 9870}),
        ("hdfs://nn/a", "https://web", {}, "webhdfs://web:9871/a", {"host": "web", "port": 9871, "use_https": True}),
        ("hdfs://nn/a", "http://web/webhdfs/v1/", {}, "webhdfs://web:9870/a", {"host": "web", "port": 9870}),
        ("hdfs://me@nn/a", None, {}, "webhdfs://nn:9870/a", {"host": "nn", "port": 9870, "user": "me"}),
        ("hdfs://me@nn/a", "http://you@nn", {}, "webhdfs://nn:9870/a", {"host": "nn", "port": 9870, "user": "you"}),
        ("hdfs://me@nn/a", None, {"user": "x"}, "webhdfs://nn:9870/a", {"host": "nn", "port": 9870, "user": "x"}),
        ("hdfs:///a", None, {"host": "h", "port": "1"}, "webhdfs://h:1/a", {"host": "h", "port": 1}),
        ("webhdfs://nn:1234/a", None, {}, "webhdfs://nn:1234/a", {"host": "nn", "port": 1234}),
        ("swebhdfs://nn/a", None, {}, "webhdfs://nn:9871/a", {"host": "nn", "port": 9871, "use_https": True}),
    ],
)
def test_hdfs_is_read_through_the_name_nodes_http_address(
    declared: str, webhdfs: str | None, options: dict[str, Any], url: str, storage: dict[str, Any]
) -> None:
    assert for_airflow(declared, webhdfs, options) == (url, storage)
    fs, path = fsspec.core.url_to_fs(url, **storage)
    scheme = "https" if storage.get("use_https") else "http"
    assert fs.url == f"{scheme}://{storage['host']}:{storage['port']}/webhdfs/v1"
    assert path == ("/a/b" if declared.endswith("b") else "/a")


@pytest.mark.parametrize("path", ["hdfs:///a", "hdfs:/a"])
def test_hdfs_without_a_host_says_what_to_set(path: str) -> None:
    with pytest.raises(CkptError, match=r"webhdfs='http://namenode:9870'.*--webhdfs") as refusal:
        for_airflow(path)
    assert refusal.value.kind == "no_name_node"


@pytest.mark.parametrize(
    "webhdfs", ["nn:9870", "nn", "hdfs://nn:8020", "http://", "http://nn:x", "https://knox/gateway/a"]
)
def test_an_address_that_is_none_of_a_name_node_says_how_to_write_one(webhdfs: str) -> None:
    with pytest.raises(CkptError, match="http://namenode:9870") as refusal:
        for_airflow("hdfs://nn/a", webhdfs)
    assert refusal.value.kind == "bad_address"


@pytest.mark.parametrize("scheme", ["wasb", "wasbs"])
def test_a_retired_azure_path_says_what_to_write_instead(scheme: str) -> None:
    with pytest.raises(CkptError, match="abfss://container@account") as refusal:
        for_airflow(f"{scheme}://box@account.blob.core.windows.net/a")
    assert refusal.value.kind == "retired_scheme"


@pytest.mark.parametrize("path", ["viewfs://x/a", "ftp://x/a", "dbfs:/a"])
def test_an_unknown_scheme_says_which_ones_are_known(path: str) -> None:
    with pytest.raises(CkptError, match=r"file://, hdfs://.*s3a://.*abfss://") as refusal:
        for_airflow(path)
    assert refusal.value.kind == "unknown_scheme"


@pytest.mark.parametrize(
    ("path", "module", "protocol", "extra"),
    [
        ("s3a://bucket/a", "s3fs", "s3", "s3"),
        ("gs://bucket/a", "gcsfs", "gs", "gcs"),
        ("abfss://box@account.dfs.core.windows.net/a", "adlfs", "abfs", "azure"),
    ],
)
def test_a_missing_library_is_answered_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, path: str, module: str, protocol: str, extra: str
) -> None:
    # fsspec keeps the classes it has loaded once.
    loaded = sys.modules["fsspec.registry"]._registry
    monkeypatch.delitem(loaded, protocol, raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CkptError) as refusal:
        open_files(path)
    assert refusal.value.kind == "library_missing"
    assert f"pip install 'airflow-ckpt[{extra}]'" in str(refusal.value)
    assert path in str(refusal.value)


def test_options_that_exclude_each_other_are_refused_without_a_traceback() -> None:
    with pytest.raises(CkptError, match="kerberos") as refusal:
        open_files("hdfs://nn/a", options={"kerberos": True, "user": "me"})
    assert refusal.value.kind == "bad_options"


def test_files_are_opened_without_asking_the_storage() -> None:
    files = open_files("hdfs://nowhere.invalid:8020/a")
    assert isinstance(files, FsspecFiles)
    assert files.root == "/a"


def test_a_storage_that_does_not_answer_is_one_error_that_names_the_checkpoint_and_what_to_try() -> None:
    with pytest.raises(CkptError, match=r"hdfs://nn/a.*--webhdfs") as refusal, readable("hdfs://nn/a"):
        raise requests.ConnectionError("no route")
    assert refusal.value.kind == "unreadable"


def test_what_a_name_node_refuses_is_such_an_error_too() -> None:
    with pytest.raises(CkptError, match=r"hdfs://nn/a.*AccessControlException") as refusal, readable("hdfs://nn/a"):
        raise RuntimeError("AccessControlException")
    assert refusal.value.kind == "unreadable"


@pytest.mark.parametrize("error", [RuntimeError, KeyError, AssertionError])
def test_a_mistake_of_ours_is_not_blamed_on_the_storage(error: type[Exception]) -> None:
    with pytest.raises(error), readable("/data/a"):
        raise error("bug")
