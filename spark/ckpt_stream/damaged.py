"""What a damaged file beside the checkpoint is called, and what it costs to go on without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ckpt_stream.look_again import Unreadable
from ckpt_stream.run_record import ACCEPTED, ADOPTION, FOLDER, INTENTS, POISON, REPLAYS, RESTARTS, RunRecordError

#: By file or folder: what is lost with it.
COSTS = {
    f"{FOLDER}/intent.json": "the driver that it names is not looked for any more: end that driver first",
    f"{FOLDER}/restarts.json": "its restarts no longer count against the budget",
    INTENTS: "the driver that it names is not looked for any more: end that driver first",
    RESTARTS: "restarts that only it holds no longer count against the budget",
    POISON: "the records that count as consumed fail the application once more",
    ADOPTION: (
        "it is no longer known which ledger the checkpoint took over: a start before its first batch is in the ledger is refused "
        "(`ForeignLedger`), and a recomputation does not know that it begins behind another query"
    ),
    REPLAYS: "a verification no longer tells of batches that replayed differently",
    ACCEPTED: "a replay that a user accepted is refused again: `airflow-ckpt ledger accept-replay` accepts it again",
}


class Damaged(RunRecordError):
    """A file beside the checkpoint is there and cannot be understood."""

    def __init__(self, file: str, problem: str) -> None:
        self.file, self.problem = file, problem
        super().__init__(
            f"The checkpoint's {file} cannot be read. {problem} If no other version of airflow-ckpt wrote it, move it away; "
            f"then {_cost(file)}."
        )

    def __reduce__(self) -> tuple[type[Damaged], tuple[str, str]]:
        return type(self), (self.file, self.problem)


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Name the file in the error about its content."""
    try:
        yield
    except Unreadable as e:
        raise Unreadable(e.file, f"{e.problem} Without it {_cost(file)}.") from e
    except Damaged:
        raise
    except (RunRecordError, UnicodeDecodeError, KeyError, TypeError, ValueError) as e:
        problem = str(e) if isinstance(e, RunRecordError) else f"It lacks a field, or one is of another kind ({e})."
        raise Damaged(file, problem) from e


def _cost(file: str) -> str:
    return COSTS.get(file) or COSTS[file.rpartition("/")[0]]
