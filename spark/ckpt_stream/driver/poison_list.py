"""The list of poison records beside the checkpoint: what a run adds to it, and what a run needs of it."""

from __future__ import annotations

from typing import Any

from ckpt_stream.protocol.offsets import Offsets
from ckpt_stream.protocol.run_files.record_files import KEEP_POISON, POISON, list_to_json, now
from ckpt_stream.protocol.run_files.run_record import Failure
from ckpt_stream.protocol.storage import ReadableFiles, WritableFiles
from ckpt_stream.spark.poison_records import consumed_records, may_be_read, read_poison


def records_to_pass(files: ReadableFiles, committed: Offsets) -> list[dict[str, Any]]:
    """The poison records that a run which continues from these offsets may read again. It must not fail on them."""
    return [poison for poison in consumed_records(files) if may_be_read(poison, committed)]


def remember_poison(files: WritableFiles, failure: Failure, run: str, committed: Offsets) -> None:
    """Add the record that ended this run, unless it must end every run (a malformed record with `malformed="fail"`)."""
    if not failure.poison or not failure.poison.get("once"):
        return
    known = read_poison(files)
    known.append({**failure.poison, "run": run, "batch": failure.batch, "time": now()})
    newest = len(known) - KEEP_POISON
    kept = [poison for number, poison in enumerate(known) if number >= newest or may_be_read(poison, committed)]
    files.write(POISON, list_to_json(kept))
