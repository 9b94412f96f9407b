"""The errors of ckpt_stream are one tree, in one file."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil

import pytest

import ckpt_stream
from ckpt_stream import errors
from ckpt_stream.errors import StreamError

pytestmark = pytest.mark.unit


def exceptions_of(module_name: str) -> list[type[BaseException]]:
    module = importlib.import_module(module_name)
    classes = [found for _, found in inspect.getmembers(module, inspect.isclass) if found.__module__ == module_name]
    return [found for found in classes if issubclass(found, BaseException)]


def modules_of_ckpt_stream() -> list[str]:
    return [module.name for module in pkgutil.walk_packages(ckpt_stream.__path__, "ckpt_stream.")]


ERRORS = exceptions_of(errors.__name__)


@pytest.mark.parametrize("module", [name for name in modules_of_ckpt_stream() if name != errors.__name__])
def test_every_error_is_defined_in_the_one_file(module: str) -> None:
    assert exceptions_of(module) == []


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: str(error.__name__))
def test_every_error_is_a_stream_error(error: type[BaseException]) -> None:
    assert issubclass(error, StreamError)


@pytest.mark.parametrize(
    "error",
    [
        errors.LedgerLost("found", "risk", "helps"),
        errors.Damaged("file", "problem", "cost"),
        errors.Unreadable("file", "problem", 3.0),
        errors.NotAdded("storage", "file", 15.0),
        errors.CannotTell("kind", "what", "helps"),
        errors.CheckpointLogError("torn", "file", "found", "helps"),
        errors.SinkError("a message alone"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_is_sent_from_a_task_arrives_as_it_was_raised(error: StreamError) -> None:
    arrived = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    assert (type(arrived), str(arrived), vars(arrived)) == (type(error), str(error), vars(error))


def test_a_refusal_says_what_was_found_what_is_at_risk_and_what_helps() -> None:
    refusal = errors.LedgerLost("Batch 5 is missing.", "It might be doubled.", "rebuild the ledger.")
    assert (refusal.found, refusal.risk, refusal.helps) == (
        "Batch 5 is missing.",
        "It might be doubled.",
        "rebuild the ledger.",
    )
    for part in (refusal.found, refusal.risk, refusal.helps):
        assert part in str(refusal)
