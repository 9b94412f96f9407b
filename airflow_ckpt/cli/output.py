"""The output of commands: the result on stdout, as text or JSON; progress and errors on stderr, one line each."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Protocol

import typer.core
from rich.console import Console, RenderableType

from airflow_ckpt.exceptions import CkptError
from ckpt_stream.errors import StreamError

# What a shell reports for a command that Ctrl-C ended.
INTERRUPTED = 130

Result = Mapping[str, Any]


class Output(Protocol):
    """The interface that prints a command's progress and its result."""

    def step(self, line: str) -> None:
        """Print a line of progress."""

    def result(self, value: Result, to_text: Callable[[Result], RenderableType]) -> None:
        """Print the result."""


class TextOutput:
    """Prints text, for users."""

    def step(self, line: str) -> None:
        Console(stderr=True, highlight=False).print(line, style="dim", markup=False)

    def result(self, value: Result, to_text: Callable[[Result], RenderableType]) -> None:
        # Texts of Kafka, Spark and users are printed as they are: brackets and colons are neither markup nor emoji.
        Console(highlight=False, soft_wrap=True, markup=False, emoji=False).print(to_text(value))


class JsonOutput:
    """Prints one JSON object to stdout, for programs."""

    def step(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")

    def result(self, value: Result, to_text: Callable[[Result], RenderableType]) -> None:
        sys.stdout.write(json.dumps(value, indent=2) + "\n")


def output_for(as_json: bool) -> Output:
    return JsonOutput() if as_json else TextOutput()


class CommandGroup(typer.core.TyperGroup):
    """All commands. Only here an error becomes a line on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        handlers = {number: signal.signal(number, _raise_system_exit) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            return super().invoke(ctx)
        except (CkptError, StreamError) as error:
            sys.stderr.write(f"airflow-ckpt: {error}\n")
            raise typer.Exit(1) from error
        except KeyboardInterrupt as interrupt:
            sys.stderr.write("airflow-ckpt: interrupted; the processes that this command started are stopped\n")
            raise typer.Exit(INTERRUPTED) from interrupt
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _raise_system_exit(number: int, frame: FrameType | None) -> None:
    """End the command as Ctrl-C does, so that a half-started stack is stopped; by default Python would exit at once."""
    raise SystemExit(128 + number)
