"""Our errors as the Python worker of a Spark task shows them to the driver, and the failures that run records keep of them."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ckpt_stream import errors
from ckpt_stream.driver.failure import describe
from ckpt_stream.errors import StreamError

#: What an error is made of, by the names of its parameters.
PARTS = {"found": "It was found.", "risk": "It is lost.", "helps": "this.", "seconds": 3.0}


def failures() -> list[dict[str, Any]]:
    """One for each kind of error that has a name of its own."""
    return list(
        _stored([kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, StreamError)])
    )


def _stored(kinds: list[type[StreamError]]) -> Iterator[dict[str, Any]]:
    for kind in kinds:
        error = _raised(kind)
        text = "".join(traceback.format_exception(error))
        yield {"raised": text, "failure": asdict(describe(RuntimeError(text), None))}


def _raised(kind: type[StreamError]) -> StreamError:
    if kind.__init__ is Exception.__init__:
        return kind("It was found.")
    return kind(*(PARTS.get(name, f"The {name}.") for name in inspect.signature(kind).parameters))
