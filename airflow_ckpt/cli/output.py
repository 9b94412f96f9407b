"""How the commands speak: results on stdout, as text or as JSON; progress and errors on stderr, one line each."""

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
    """One way to show a command's progress and its result."""

    def step(self, line: str) -> None:
        """Say what happens now."""

    def result(self, value: Result, as_text: Callable[[Result], RenderableType]) -> None:
        """Show what came out."""


class TextOutput:
    """For people."""

    def step(self, line: str) -> None:
        Console(stderr=True, highlight=False).print(line, style="dim", markup=False)

    def result(self, value: Result, as_text: Callable[[Result], RenderableType]) -> None:
        # What Kafka, Spark and users have written is shown as it is: brackets and colons in it are neither markup nor emoji.
        Console(highlight=False, soft_wrap=True, markup=False, emoji=False).print(as_text(value))


class JsonOutput:
    """For programs: stdout holds one JSON object and nothing else."""

    def step(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")

    def result(self, value: Result, as_text: Callable[[Result], RenderableType]) -> None:
        sys.stdout.write(json.dumps(value, indent=2) + "\n")


def output_for(as_json: bool) -> Output:
    return JsonOutput() if as_json else TextOutput()


class OneLineErrors(typer.core.TyperGroup):
    """The one place where an error becomes a line on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        with_cleanup = {number: signal.signal(number, _end_in_order) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            return super().invoke(ctx)
        except (CkptError, StreamError) as error:
            sys.stderr.write(f"airflow-ckpt: {error}\n")
            raise typer.Exit(1) from error
        except KeyboardInterrupt as interrupt:
            sys.stderr.write("airflow-ckpt: interrupted; what this command had started is stopped again\n")
            raise typer.Exit(INTERRUPTED) from interrupt
        finally:
            for number, handler in with_cleanup.items():
                signal.signal(number, handler)


def _end_in_order(number: int, frame: FrameType | None) -> None:
    """Unwind as Ctrl-C does, so that a half-started stack is stopped: by default Python ends on the spot."""
    raise SystemExit(128 + number)
