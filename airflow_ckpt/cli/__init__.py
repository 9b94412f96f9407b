"""The command `airflow-ckpt`. Its import is fast, because each command imports only what it needs."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_ckpt import __version__
from airflow_ckpt.cli import demo, history, inspect, ledger, local, status, stop, verify
from airflow_ckpt.cli.output import CommandGroup

app = typer.Typer(
    name="airflow-ckpt",
    help="PySpark Structured Streaming from Kafka to Kafka, exactly once, run by Airflow.",
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    # A traceback in colour, with all local variables, would show passwords.
    pretty_exceptions_enable=False,
)
app.add_typer(local.app, name="local")
app.add_typer(ledger.app, name="ledger")
app.command()(demo.demo)
app.command()(verify.verify)
app.command()(status.status)
app.command()(status.resume)
app.command()(stop.stop)
app.command()(inspect.inspect)
app.command()(history.history)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"airflow-ckpt {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the console script."""
    app()
