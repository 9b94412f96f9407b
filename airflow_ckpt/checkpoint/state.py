"""The size of the state in a checkpoint, from the names and sizes of its files. Lists every file, so it is too slow to poll."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles

#: A version of a partition's state, of either state store provider: `7.delta`, `7.snapshot`, `7.zip`, `7.changelog` and, since
#: version 2 of the commit log, `7_<id>.zip`.
_VERSION_FILE = re.compile(r"(\d+)(?:_[^.]+)?\.(?:delta|snapshot|zip|changelog)")
#: Spark's name for the store of an operator that has only one store; its files are in the partition's folder itself.
DEFAULT_STORE = "default"


@dataclass(frozen=True)
class StateOperator:
    """The state of one stateful operator of the query: an aggregation, a join, a deduplication."""

    operator: int
    #: Spark's name of the operator: `stateStoreSave`, `symmetricHashJoin`, ...; None if its metadata is missing.
    name: str | None
    stores: tuple[str, ...]
    partitions: int
    #: The newest version of the state; version N was written by batch N-1.
    version: int | None
    size: int
    files: int


def read_state(files: FsspecFiles) -> tuple[StateOperator, ...]:
    """Read the size of each stateful operator's state; empty for a stream without state."""
    by_operator: dict[int, dict[str, int]] = defaultdict(dict)
    for path, size in files.sizes("state").items():
        operator, _, rest = path.partition("/")
        if operator.isascii() and operator.isdecimal():
            by_operator[int(operator)][rest] = size
    return tuple(_operator(files, number, sizes) for number, sizes in sorted(by_operator.items()))


def _operator(files: FsspecFiles, number: int, sizes: dict[str, int]) -> StateOperator:
    metadata = _metadata(files, number, sizes)
    known = [store for store in metadata.get("stateStoreInfo") or () if isinstance(store, dict)]
    name = (metadata.get("operatorInfo") or {}).get("operatorName")
    stores, partitions, versions = {str(store["storeName"]) for store in known if "storeName" in store}, set(), []
    for path in sizes:
        *folders, file = path.split("/")
        version = _VERSION_FILE.fullmatch(file)
        if version and folders and folders[0].isdecimal():
            partitions.add(folders[0])
            stores.add("/".join(folders[1:]) or DEFAULT_STORE)
            versions.append(int(version.group(1)))
    return StateOperator(
        operator=number,
        name=str(name) if name else None,
        stores=tuple(sorted(stores)),
        partitions=len(partitions),
        version=max(versions, default=None),
        size=sum(sizes.values()),
        files=len(sizes),
    )


def _metadata(files: FsspecFiles, operator: int, sizes: dict[str, int]) -> dict[str, Any]:
    """Spark's metadata of the operator: one file in version 1, one file per change of its schema in version 2."""
    changes = [int(p.removeprefix("_metadata/v2/")) for p in sizes if re.fullmatch(r"_metadata/v2/[0-9]+", p)]
    path = f"_metadata/v2/{max(changes)}" if changes else "_metadata/metadata"
    if path not in sizes:
        return {}
    try:
        document = json.loads((files.read(f"state/{operator}/{path}") or "").partition("\n")[2])
    except ValueError:
        # Only the operator's name is taken from this file; Spark itself reports damage of it.
        return {}
    usable = isinstance(document, dict) and isinstance(document.get("operatorInfo") or {}, dict)
    return document if usable and isinstance(document.get("stateStoreInfo") or [], list) else {}
