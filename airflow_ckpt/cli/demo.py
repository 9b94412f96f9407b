"""`airflow-ckpt demo`: a stream crashes and is restarted, and its sink is verified."""

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
from airflow_ckpt.local.announcements import Announce


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave Kafka and Airflow running, to look around in the UI.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON line at the end.")] = False,
) -> None:
    """Crash a stream, restart it, and show that no record was lost or doubled. Exit code 0 if that is true."""
    from airflow_ckpt.demo.result_text import result_as_text
    from airflow_ckpt.demo.run_demo import run_demo
    from airflow_ckpt.local import stack
    from airflow_ckpt.local.paths import stack_home
    from airflow_ckpt.local.processes.interrupts import ignore_interrupts

    home = stack_home().with_name(stack_home().name + "-demo")
    out: Output = JsonOutput() if as_json else TextOutput()
    stack.down(home)
    shutil.rmtree(home, ignore_errors=True)
    kept = False
    try:
        with _live(as_json) as progress:
            value = run_demo(home, out.step, progress)
        if keep:
            airflow = stack.airflow_of(home)
            value |= {"url": airflow.url, "username": airflow.username, "password": airflow.password}
        value["report"] = _save_report(value["report"], home)
        TextOutput().result(value, result_as_text)
        kept = keep
    finally:
        if not kept:
            with ignore_interrupts():
                stack.down(home)
    if keep:
        out.step(f"stop it with: {stack.command(home, 'local down')}")
    if as_json:
        sys.stdout.write(json.dumps({k: v for k, v in value.items() if k not in ("batches", "password")}) + "\n")
    raise typer.Exit(0 if value["result"] == "PASS" else 1)


def _save_report(report: str | None, home: Path) -> str | None:
    """Copy the report to a path that is easy to find."""
    if report is None:
        return None
    target = home / "report.html"
    shutil.copyfile(report, target)
    return str(target)


@contextmanager
def _live(as_json: bool) -> Iterator[Announce]:
    """Show a few lines that are updated in place on a terminal; without a terminal, show nothing."""
    if as_json or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(stderr=True), transient=True, refresh_per_second=4) as live:
        yield lambda text: live.update(Text(text))
