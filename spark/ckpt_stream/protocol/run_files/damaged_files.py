"""Errors about a damaged file beside the checkpoint name the file, and what is lost if the user removes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ckpt_stream.errors import Damaged, RunRecordError, Unreadable
from ckpt_stream.protocol.run_files.record_files import ACCEPTED, ADOPTION, FOLDER, INTENTS, POISON, REPLAYS, RESTARTS

#: By file or folder: what is lost if the user removes it.
COST_OF_LOSS = {
    f"{FOLDER}/intent.json": "the driver that it names is no longer looked for: end that driver first",
    f"{FOLDER}/restarts.json": "its restarts no longer count against the budget",
    INTENTS: "the driver that it names is no longer looked for: end that driver first",
    RESTARTS: "restarts that only it holds no longer count against the budget",
    POISON: "the records that count as consumed fail the application once more",
    ADOPTION: (
        "it is unknown which ledger the checkpoint has adopted: a start before its first batch is in the ledger is refused "
        "(`ForeignLedger`), and a recomputation does not know that it begins after another query"
    ),
    REPLAYS: "a verification no longer names batches that replayed differently",
    ACCEPTED: "a replay that a user accepted is refused again: `airflow-ckpt ledger accept-replay` accepts it again",
}


@contextmanager
def naming_file(file: str) -> Iterator[None]:
    """Name the file in every error that is raised while it is read."""
    try:
        yield
    except Unreadable as e:
        raise Unreadable(e.file, f"{e.problem} Without it {_cost(file)}.", e.seconds) from e
    except Damaged:
        raise
    except (RunRecordError, UnicodeDecodeError, KeyError, TypeError, ValueError) as e:
        problem = str(e) if isinstance(e, RunRecordError) else f"It lacks a field, or a field has another type ({e})."
        raise Damaged(file, problem, _cost(file)) from e


def _cost(file: str) -> str:
    return COST_OF_LOSS.get(file) or COST_OF_LOSS[file.rpartition("/")[0]]
