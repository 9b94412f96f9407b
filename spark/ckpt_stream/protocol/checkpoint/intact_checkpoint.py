"""The newest batches of a checkpoint, as a start of the stream needs them: a damaged file raises an error that names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ckpt_stream.errors import CheckpointLogError
from ckpt_stream.protocol.checkpoint.checkpoint_log import FOREIGN, RESTORE, input_digest, parse_metadata
from ckpt_stream.protocol.checkpoint.newest_batches import MISSING, NewestBatches, newest_entries
from ckpt_stream.protocol.storage import NOT_A_TEXT, ReadableFiles, TolerantFiles


@dataclass(frozen=True)
class IntactCheckpoint(NewestBatches):
    """The newest batches of a checkpoint whose logs are whole, and what identifies them."""

    query_id: str | None = None
    #: By batch, the digest of its input; only of these two batches.
    digests: Mapping[int, str] = field(default_factory=dict)


def read_intact_checkpoint(files: ReadableFiles) -> IntactCheckpoint:
    """Read the newest batches of a checkpoint. Raises CheckpointLogError, which names the file, if one is damaged."""
    files = TolerantFiles(files)
    entries = newest_entries(files)
    for damage in entries.logs.damage:
        raise CheckpointLogError(damage.kind, damage.file, damage.found, RESTORE)
    digests: dict[int, str] = {}
    for name, text in entries.texts.items():
        if text is None:
            raise CheckpointLogError(MISSING, name, f"{name} was listed but does not exist.", RESTORE)
        if text == NOT_A_TEXT:
            raise CheckpointLogError(
                FOREIGN, name, f"{name} is not text: it is damaged, or another program wrote it.", RESTORE
            )
        digests[int(name.removeprefix("offsets/"))] = input_digest(text)
    metadata = files.read("metadata")
    query_id = parse_metadata(metadata) if metadata else None
    return IntactCheckpoint(entries.logs.newest, entries.logs.committed, query_id, digests)
