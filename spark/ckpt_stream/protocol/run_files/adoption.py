"""The ledger that the query of a new checkpoint has adopted, as a file beside the checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from ckpt_stream.protocol.run_files.damaged_files import naming_file
from ckpt_stream.protocol.run_files.record_files import ADOPTION, FORMAT, parse_document, to_json
from ckpt_stream.protocol.storage import ReadableFiles, WritableFiles


@dataclass(frozen=True)
class Adoption:
    """The end of another query's ledger, after which a new checkpoint of a stateless stream continues."""

    query_id: str
    batch: int


def read_adoption(files: ReadableFiles) -> Adoption | None:
    """The end of another query's ledger that the checkpoint's query has adopted."""
    with naming_file(ADOPTION):
        if not (stored := files.read(ADOPTION)):
            return None
        document = parse_document(stored, "adoption record")
        return Adoption(document["query_id"], int(document["batch"]))


def note_adoption(files: WritableFiles, adopted: Adoption) -> None:
    files.write(ADOPTION, to_json({"format": FORMAT, "query_id": adopted.query_id, "batch": adopted.batch}))


def remove_adoption(files: WritableFiles) -> None:
    files.remove(ADOPTION)
