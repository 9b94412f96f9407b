"""What the state stores of a checkpoint hold, by the names and sizes of their files. Lists every file: too slow for a poll."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles

#: A version of a partition's state, by either provider: `7.delta`, `7.snapshot`, `7.zip`, `7.changelog`, and with the
#: unique id that the second version of the commit log brought, `7_<id>.zip`.
_VERSION_FILE = re.compile(r"(\d+)(?:_[^.]+)?\.(?:delta|snapshot|zip|changelog)")
#: Spark's name for the store of an operator that has only one; its files are in the partition's folder itself.
DEFAULT_STORE = "default"


@dataclass(frozen=True)
class StateOperator:
    """The state of one stateful operator of the query: an aggregation, a join, a deduplication."""

    operator: int
    #: As Spark calls it: `stateStoreSave`, `symmetricHashJoin`, ...; None if its metadata is not there.
    name: str | None
    stores: tuple[str, ...]
    partitions: int
    #: The newest version of the state; the batch before it wrote it.
    version: int | None
    size: int
    files: int


def read_state(files: FsspecFiles) -> tuple[StateOperator, ...]:
    """Read the size of each stateful operator's state; none for a stream without state."""
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
    """What Spark wrote about the operator: one file in version 1, one per change of its schema in version 2."""
    changes = [int(p.removeprefix("_metadata/v2/")) for p in sizes if re.fullmatch(r"_metadata/v2/[0-9]+", p)]
    path = f"_metadata/v2/{max(changes)}" if changes else "_metadata/metadata"
    if path not in sizes:
        return {}
    try:
        document = json.loads((files.read(f"state/{operator}/{path}") or "").partition("\n")[2])
    except ValueError:
        # Only the operator's name comes from here; Spark itself reports what is wrong with the file.
        return {}
    usable = isinstance(document, dict) and isinstance(document.get("operatorInfo") or {}, dict)
    return document if usable and isinstance(document.get("stateStoreInfo") or [], list) else {}
