"""`airflow-ckpt local`: Kafka and Airflow on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from airflow_ckpt.cli.output import Result, output_for
from airflow_ckpt.local.paths import stack_home

app = typer.Typer(help="A real Kafka and a real Airflow on this machine.", no_args_is_help=True)

Home = Annotated[
    Path | None,
    typer.Option(help="Folder of the stack.", envvar="AIRFLOW_CKPT_HOME", show_default="the user's data folder"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@app.command()
def up(
    home: Home = None,
    brokers: Annotated[
        int | None, typer.Option(min=1, max=9, help="Number of Kafka brokers.", show_default="1, or as before")
    ] = None,
    sasl_ssl: Annotated[bool, typer.Option("--sasl-ssl", help="Add a SASL_SSL listener, and use it.")] = False,
    kafka_only: Annotated[bool, typer.Option("--kafka-only", help="Start no Airflow.")] = False,
    json: Json = False,
) -> None:
    """Start Kafka and Airflow unless they are running, and show their addresses."""
    from airflow_ckpt.local import stack

    output = output_for(json)
    summary = stack.up(
        home or stack_home(), brokers=brokers, sasl_ssl=sasl_ssl, kafka_only=kafka_only, announce=output.step
    )
    output.result(summary, _summary_text)


@app.command()
def down(home: Home = None, json: Json = False) -> None:
    """Stop Kafka and Airflow. Their data stays."""
    from airflow_ckpt.local import stack

    output = output_for(json)
    output.result(stack.down(home or stack_home(), announce=output.step), _down_text)


@app.command()
def status(home: Home = None, json: Json = False) -> None:
    """Show the processes and addresses of Kafka and Airflow."""
    from airflow_ckpt.local import stack

    output_for(json).result(stack.status(home or stack_home()), _status_text)


def _summary_text(summary: Result) -> RenderableType:
    airflow = summary["airflow"]
    rows = [("Kafka", summary["kafka"]["bootstrap"]), ("Kafka, SASL_SSL", summary["kafka"]["sasl_bootstrap"])]
    if airflow:
        rows += [("Airflow", airflow["url"]), ("login", f"{airflow['username']} / {airflow['password']}")]
    return _table([*rows, ("next", summary["next"]), ("stop", summary["stop"])])


def _down_text(_: Result) -> RenderableType:
    return "Everything is stopped; the data stays."


def _status_text(status: Result) -> RenderableType:
    airflow = status["airflow"]
    rows = [(f"Kafka {node['node']}", _broker_text(node)) for node in status["kafka"]["nodes"]]
    rows = rows or [("Kafka", "stopped")]
    rows += [(f"Airflow {name}", _component_text(component)) for name, component in airflow["components"].items()]
    if airflow["running"]:
        rows += [("Airflow", airflow["url"]), ("Airflow's log", airflow["log"])]
    return _table([*rows, ("home", status["home"])])


def _broker_text(node: Result) -> str:
    if not node["alive"]:
        return "stopped"
    return f"{'healthy' if node['answering'] else 'does not answer'}, port {node['port']}, pid {node['pid']}"


def _component_text(component: Result) -> str:
    return f"{component['state']}, pid {component['pid']}" if "pid" in component else str(component["state"])


def _table(rows: list[tuple[str, Any]]) -> Text:
    """Names and values in two columns; names without a value are left out."""
    width = max(len(name) for name, value in rows if value)
    return Text("\n".join(f"{name:<{width}}   {value}" for name, value in rows if value))
