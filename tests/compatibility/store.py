"""Stores what this version keeps beyond the life of a process, so that later versions can be tested to read it.

Before a release, in a checkout of it:

    .venv/bin/python -m tests.compatibility.store 0.2.0

That makes the folder ``tests/compatibility/stored/0.2.0``; commit it as it is. `test_stored_by_earlier_versions.py` reads every
folder there is, so the next version is held to it. A folder is never edited by hand and never made again: it is evidence.

Every file is written by the code that writes it in production, or is what that code has returned. Only Kafka, Spark and the
commands of the drivers are replaced. Names of this machine are replaced too: see `machine`.

| path | what |
| --- | --- |
| `airflow/deferred.json` | each wait of each operator: trigger, method to go on with, event |
| `airflow/state.json` | a task's state store and XComs |
| `airflow/dag.json` | a serialised DAG with every operator |
| `airflow/others.json` | provider info and a stream's asset |
| `streams/*.json` | declarations, and the configuration that a driver is given |
| `checkpoint/` | a checkpoint with everything in `_ckpt/` |
| `work/<token>/` | folders of drivers and of jobs beside the stream |
| `ledger.json` | records of the ledger topic |
| `failures.json` | errors as a task's traceback names them, and the failure that a run record keeps |

`SINGLE_FILES` was stored by a build that kept one ``restarts.json`` and one ``intent.json``; no later version writes those.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

STORED = Path(__file__).with_name("stored")
SINGLE_FILES = "0.1.0-single-files"
#: What is as large as a library or a page, and read by no later version.
NOT_KEPT = ("work/*/*.zip", "work/*/*.py", "work/*/*.log", "checkpoint/_ckpt/verdicts/*.html")


def store(root: Path) -> None:
    """Fill an empty folder with what this version stores."""
    from tests.compatibility import capture_airflow, capture_checkpoint, capture_streams, capture_verification
    from tests.compatibility.capture_failures import failures
    from tests.compatibility.machine import take_names_out
    from tests.compatibility.site import Site

    with tempfile.TemporaryDirectory() as applications:
        site = Site(root, Path(applications))
        try:
            capture_checkpoint.capture(site)
            jobs = capture_verification.capture(site)
        finally:
            site.end()
    tasks, state, pushed = capture_airflow.deferred_tasks()
    _write(root / "airflow/deferred.json", [*tasks, *jobs])
    _write(root / "airflow/state.json", {"task_state_store": state, "xcoms": pushed})
    _write(root / "airflow/dag.json", capture_airflow.serialised_dag())
    _write(root / "airflow/others.json", capture_airflow.others())
    for name, stream in capture_streams.capture():
        _write(root / f"streams/{name}.json", stream)
    _write(root / "ledger.json", capture_verification.ledger())
    _write(root / "failures.json", failures())
    for pattern in NOT_KEPT:
        for path in root.glob(pattern):
            path.unlink()
    take_names_out(root)


def _write(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    """Store this version under the name that is given."""
    root = STORED / sys.argv[1]
    root.mkdir()
    with tempfile.TemporaryDirectory() as home:
        os.environ["AIRFLOW_HOME"] = home
        store(root)
    print(root)


if __name__ == "__main__":
    main()
