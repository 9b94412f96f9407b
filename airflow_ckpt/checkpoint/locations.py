"""Translates Spark's path of a checkpoint for Airflow: Hadoop and fsspec have different names for the same storage."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult, urlsplit

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.exceptions import BadArgument, BadStream, NotInstalled, StorageError

#: Hadoop's name of a storage, and fsspec's name of it.
OBJECT_STORES = {
    "s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "abfss": "abfs",
}  # fmt: skip
#: The extra of this package that installs fsspec's implementation.
EXTRAS = {"s3": "s3", "gs": "gcs", "abfs": "azure"}
#: Ports of a NameNode's HTTP and HTTPS address, by default.
HTTP_PORT, HTTPS_PORT = 9870, 9871

_SCHEMES = "a plain path, file://, hdfs://, webhdfs://, s3a://, gs://, abfss://"
#: At least two letters: one letter is a drive of Windows.
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):/")
#: Errors from these packages mean that a storage does not answer, not that this package has a bug.
_STORAGE_CLIENTS = {"botocore", "aiobotocore", "aiohttp", "s3fs", "gcsfs", "google", "adlfs", "azure"}


def for_airflow(
    checkpoint: str, webhdfs: str | None = None, options: Mapping[str, Any] | None = None
) -> tuple[str, dict[str, Any]]:
    """The fsspec URL and storage options with which Airflow reads the checkpoint that has this path in Spark."""
    given = dict(options or {})
    scheme = _scheme(checkpoint)
    if scheme in ("", "file"):
        return checkpoint, given
    if scheme in OBJECT_STORES:
        return f"{OBJECT_STORES[scheme]}://{checkpoint.partition(':')[2].lstrip('/')}", given
    if scheme in ("hdfs", "webhdfs", "swebhdfs"):
        return _for_webhdfs(checkpoint, scheme, webhdfs, given)
    if scheme in ("wasb", "wasbs"):
        raise BadStream(
            f"{checkpoint} uses {scheme}://, which Azure has retired and Airflow cannot read. Write the same container as "
            "abfss://container@account.dfs.core.windows.net/path.",
            kind="retired_scheme",
        )
    raise BadStream(
        f"{checkpoint} begins with {scheme}://, which Airflow cannot read. It can read {_SCHEMES}.",
        kind="unknown_scheme",
    )


def same_place(one: str, other: str) -> bool:
    """Whether two paths name one checkpoint: with or without `file://`, as `s3://` or `s3a://`, with a slash at the end."""
    return _place(one) == _place(other)


def _place(checkpoint: str) -> tuple[str, str]:
    scheme = _scheme(checkpoint)
    path = checkpoint.partition(":")[2] if scheme else checkpoint
    if scheme in ("", "file"):
        return "file", os.path.abspath(re.sub("^//+", "/", path))
    return OBJECT_STORES.get(scheme, scheme), path.strip("/")


def open_files(checkpoint: str, webhdfs: str | None = None, options: Mapping[str, Any] | None = None) -> FsspecFiles:
    """Open the checkpoint's files for Airflow; nothing is read yet."""
    url, storage = for_airflow(checkpoint, webhdfs, options)
    try:
        return FsspecFiles(url, storage)
    except ImportError as e:
        extra = EXTRAS.get(_scheme(url))
        helps = f"pip install 'airflow-ckpt[{extra}]'" if extra else f"pip install {e.name or 'it'}"
        raise NotInstalled(
            f"{checkpoint} cannot be read: {e}. What helps, where Airflow runs: {helps}", kind="library_missing"
        ) from e
    except (TypeError, ValueError) as e:
        # Not BadStream, which is final: a client may also raise these errors for what its storage answered.
        raise BadArgument(
            f"{checkpoint} cannot be opened with these storage options ({', '.join(storage)}): {e}", kind="bad_options"
        ) from e


@contextmanager
def readable(checkpoint: str) -> Iterator[None]:
    """Raise the storage's own errors as a CkptError that names the checkpoint."""
    try:
        yield
    except Exception as e:
        package = type(e).__module__.partition(".")[0]
        if not isinstance(e, OSError) and package not in _STORAGE_CLIENTS and _not_from_webhdfs(checkpoint, e):
            raise
        hint = ""
        if _scheme(checkpoint) == "hdfs":
            hint = (
                " If the host is a nameservice, or the NameNode's HTTP address is another one, give it as "
                "http://namenode:9870 (--webhdfs, Stream(webhdfs=...)); with a user: http://user@namenode:9870."
            )
        raise StorageError(
            f"{checkpoint} could not be read ({type(e).__name__}: {e}), so the state of the stream is unknown.{hint}",
            kind="unreadable",
        ) from e


def _not_from_webhdfs(checkpoint: str, error: Exception) -> bool:
    """fsspec raises the refusal of a NameNode as a plain RuntimeError or ValueError."""
    return not (_scheme(checkpoint) in ("hdfs", "webhdfs", "swebhdfs") and type(error) in (RuntimeError, ValueError))


def _scheme(path: str) -> str:
    found = _SCHEME.match(path)
    return found.group(1).lower() if found else ""


def _for_webhdfs(
    checkpoint: str, scheme: str, webhdfs: str | None, options: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    declared = urlsplit(checkpoint)
    address = _namenode(webhdfs) if webhdfs else declared
    https = address.scheme in ("https", "swebhdfs")
    port = HTTPS_PORT if https else HTTP_PORT
    if scheme != "hdfs" or webhdfs:
        # The port in an hdfs:// path is that of the NameNode's RPC service, not that of WebHDFS.
        port = address.port or port
    host = options.get("host") or address.hostname
    if not host:
        raise BadStream(
            f"{checkpoint} names no NameNode: Spark takes it from Hadoop's configuration, which Airflow does not read. Give "
            "its HTTP address: Stream(webhdfs='http://namenode:9870'), --webhdfs http://namenode:9870 on the command line.",
            kind="no_name_node",
        )
    storage = {"host": host, "port": int(options.get("port") or port)}
    if https:
        storage["use_https"] = True
    for url in (declared, address):
        storage |= {k: v for k, v in (("user", url.username), ("password", url.password)) if v}
    storage |= {k: v for k, v in options.items() if k not in ("host", "port")}
    return f"webhdfs://{storage['host']}:{storage['port']}{declared.path or '/'}", storage


def _namenode(webhdfs: str) -> SplitResult:
    try:
        address = urlsplit(webhdfs)
        well_formed = (
            address.scheme in ("http", "https") and address.hostname and (address.port is None or address.port)
        )
    except ValueError:
        well_formed = False
    if not well_formed or address.path.rstrip("/") not in ("", "/webhdfs/v1"):
        raise BadStream(
            f"webhdfs={webhdfs!r} is not the HTTP address of a NameNode. Write http://namenode:9870.",
            kind="bad_address",
        )
    return address
