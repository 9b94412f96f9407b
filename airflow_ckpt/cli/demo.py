"""`airflow-ckpt demo`: watch a stream die and come back, and read the proof that nothing was lost or doubled."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from airflow_ckpt.cli.output import JsonOutput, Output, TextOutput
from airflow_ckpt.demo.play import Say


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave Kafka and Airflow up, to look around in the UI.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Also print the figures as one JSON line, last.")] = False,
) -> None:
    """Show a stream that survives crashes without losing or doubling a record. Exit code 0 if it did."""
    from airflow_ckpt.demo.play import play
    from airflow_ckpt.demo.show import as_text
    from airflow_ckpt.local import stack
    from airflow_ckpt.local.interrupts import undisturbed
    from airflow_ckpt.local.paths import stack_home

    home = stack_home().with_name(stack_home().name + "-demo")
    out: Output = JsonOutput() if as_json else TextOutput()
    stack.down(home)
    shutil.rmtree(home, ignore_errors=True)
    kept = False
    try:
        with _live(as_json) as progress:
            value = play(home, out.step, progress)
        if keep:
            airflow = stack._airflow(home)
            value |= {"url": airflow.url, "username": airflow.username, "password": airflow.password}
        value["report"] = _save_report(value["report"], home)
        TextOutput().result(value, as_text)
        kept = keep
    finally:
        if not kept:
            with undisturbed():
                stack.down(home)
    if keep:
        out.step(f"stop it with: {stack.command(home, 'local down')}")
    if as_json:
        sys.stdout.write(json.dumps({k: v for k, v in value.items() if k not in ("batches", "password")}) + "\n")
    raise typer.Exit(0 if value["result"] == "PASS" else 1)


def _save_report(report: str | None, home: Path) -> str | None:
    """A copy at a place that is easy to find again."""
    if report is None:
        return None
    target = home / "report.html"
    shutil.copyfile(report, target)
    return str(target)


@contextmanager
def _live(as_json: bool) -> Iterator[Say]:
    """Lines that are written over while one watches; nothing of it where nobody does."""
    if as_json or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(stderr=True), transient=True, refresh_per_second=4) as live:
        yield lambda text: live.update(Text(text))
