"""Errors about a damaged file beside the checkpoint name the file, and what it costs to go on without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ckpt_stream.errors import Damaged, RunRecordError, Unreadable
from ckpt_stream.protocol.run_files.record_files import ACCEPTED, ADOPTION, FOLDER, INTENTS, POISON, REPLAYS, RESTARTS

#: By file or folder: what is lost with it.
COST_OF_LOSS = {
    f"{FOLDER}/intent.json": "the driver that it names is not looked for any more: end that driver first",
    f"{FOLDER}/restarts.json": "its restarts no longer count against the budget",
    INTENTS: "the driver that it names is not looked for any more: end that driver first",
    RESTARTS: "restarts that only it holds no longer count against the budget",
    POISON: "the records that count as consumed fail the application once more",
    ADOPTION: (
        "it is no longer known which ledger the checkpoint took over: a start before its first batch is in the ledger is refused "
        "(`ForeignLedger`), and a recomputation does not know that it begins after another query"
    ),
    REPLAYS: "a verification no longer names batches that replayed differently",
    ACCEPTED: "a replay that a user accepted is refused again: `airflow-ckpt ledger accept-replay` accepts it again",
}


@contextmanager
def naming_file(file: str) -> Iterator[None]:
    """Name the file in any error that is raised while its text is understood."""
    try:
        yield
    except Unreadable as e:
        raise Unreadable(e.file, f"{e.problem} Without it {_cost(file)}.", e.seconds) from e
    except Damaged:
        raise
    except (RunRecordError, UnicodeDecodeError, KeyError, TypeError, ValueError) as e:
        problem = str(e) if isinstance(e, RunRecordError) else f"It lacks a field, or one is of another kind ({e})."
        raise Damaged(file, problem, _cost(file)) from e


def _cost(file: str) -> str:
    return COST_OF_LOSS.get(file) or COST_OF_LOSS[file.rpartition("/")[0]]
