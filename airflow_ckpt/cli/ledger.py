"""`airflow-ckpt ledger`: show a sink's ledger, and repair it after a refusal."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from airflow_ckpt.cli.kafka_options import AsJson, Bootstrap, KafkaConfig, kafka_from_options
from airflow_ckpt.cli.output import Result, output_for
from airflow_ckpt.cli.streams import WebHdfs, me
from airflow_ckpt.exceptions import NotConfirmed

app = typer.Typer(help="Show a sink's ledger, and repair it after a refusal.", no_args_is_help=True)

SinkId = Annotated[str, typer.Argument(help="The stream's sink_id; by default the stream's name.")]


@app.command()
def show(
    sink_id: SinkId, bootstrap: Bootstrap = None, kafka_config: KafkaConfig = None, as_json: AsJson = False
) -> None:
    """Show the newest record of every lane."""
    from dataclasses import asdict

    from ckpt_stream.kafka.lane_control import read_ledger_ends
    from ckpt_stream.kafka.topics import Topics
    from ckpt_stream.protocol.ledger.ledger_record import ledger_topic

    kafka = kafka_from_options(bootstrap, kafka_config)
    topic = Topics(kafka).get(ledger_topic(sink_id), "ledger")
    newest = read_ledger_ends(kafka, topic.name, topic.partitions)
    lanes = [None if record is None else asdict(record) for record in newest]
    output_for(as_json).result({"topic": topic.name, "lanes": lanes}, _as_table)


def _as_table(value: Result) -> Table:
    table = Table(title=f"newest records of {value['topic']}")
    for column in ("lane", "batch", "kind", "records", "end offsets", "query", "time"):
        table.add_column(column)
    for lane, record in enumerate(value["lanes"]):
        if record is None:
            table.add_row(str(lane), "-", "", "", "", "", "")
        else:
            shown = (record[name] for name in ("batch", "kind", "records"))
            last = (json.dumps(record["end"]), record["query_id"], record["time"])
            table.add_row(*map(str, (lane, *shown, *last)))
    return table


@app.command()
def rebuild(
    sink_id: SinkId,
    checkpoint: Annotated[str, typer.Option(help="The stream's checkpoint folder.")],
    sink: Annotated[str, typer.Option(help="The sink topic.")],
    lanes: Annotated[int, typer.Option(help="The stream's number of lanes.")] = 1,
    in_doubt: Annotated[
        str | None, typer.Option(help="A batch in doubt: 'redo' writes it again, 'done' counts it as written.")
    ] = None,
    bootstrap: Bootstrap = None,
    kafka_config: KafkaConfig = None,
    webhdfs: WebHdfs = None,
    as_json: AsJson = False,
) -> None:
    """Write a new ledger that begins at the checkpoint, after the ledger was lost or the sink topic was replaced."""
    from airflow_ckpt.checkpoint.locations import open_files, readable
    from ckpt_stream.kafka.ledger_repair import rebuild as rebuild_ledger

    kafka = kafka_from_options(bootstrap, kafka_config)
    with readable(checkpoint):
        files = open_files(checkpoint, webhdfs)
        done = rebuild_ledger(files, kafka, sink_id=sink_id, sink=sink, lanes=lanes, in_doubt=in_doubt)
    value = {"topic": done.topic, "batch": done.batch, "lanes": done.lanes}
    output_for(as_json).result(value, lambda v: f"{v['topic']}: {v['lanes']} lane(s) anchored at batch {v['batch']}")


@app.command("accept-replay")
def accept_replay(
    sink_id: SinkId,
    checkpoint: Annotated[str, typer.Option(help="The stream's checkpoint folder.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Accept that records of this batch may be lost or doubled.")
    ] = False,
    bootstrap: Bootstrap = None,
    kafka_config: KafkaConfig = None,
    webhdfs: WebHdfs = None,
    as_json: AsJson = False,
) -> None:
    """Let the stream finish a batch whose replay differs from the part that is in the sink (ReplayDiffers)."""
    from airflow_ckpt.checkpoint.locations import open_files, readable
    from ckpt_stream.kafka.ledger_repair import accept_differing_replay

    if not yes:
        raise NotConfirmed(
            "Nothing was changed. The missing lanes of the batch would be written from a replay that differs from the one "
            "that wrote the other lanes: records that moved between lanes are lost or doubled, and the verdict on the batch "
            "is never clean. To avoid that, run the version of the application that wrote the batch. If you cannot: "
            f"`airflow-ckpt ledger accept-replay {sink_id} --checkpoint {checkpoint} --yes`"
        )
    with readable(checkpoint):
        files = open_files(checkpoint, webhdfs)
        done = accept_differing_replay(files, kafka_from_options(bootstrap, kafka_config), sink_id, by=me())
    value = {"batch": done.batch, "lanes_there": list(done.lanes_there), "lanes_missing": list(done.lanes_missing)}
    output_for(as_json).result(
        value,
        lambda v: (
            f"batch {v['batch']}: the next run keeps lanes {v['lanes_there']} and writes lanes {v['lanes_missing']}. "
            f"Start it with a new DAG run, or `airflow-ckpt resume {checkpoint} --new-budget`."
        ),
    )


@app.command()
def reset(
    sink_id: SinkId,
    yes: Annotated[bool, typer.Option("--yes", help="Accept that records of the sink may be written again.")] = False,
    bootstrap: Bootstrap = None,
    kafka_config: KafkaConfig = None,
    as_json: AsJson = False,
) -> None:
    """Delete the ledger, to start over with an empty checkpoint."""
    from ckpt_stream.kafka.ledger_repair import reset as reset_ledger

    if not yes:
        raise NotConfirmed(
            f"Nothing was deleted. Without the ledger of {sink_id} the next start writes the records of the sink a second "
            f"time. If you want that: `airflow-ckpt ledger reset {sink_id} --yes`"
        )
    topic = reset_ledger(kafka_from_options(bootstrap, kafka_config), sink_id)
    output_for(as_json).result({"deleted": topic}, lambda v: f"{v['deleted']} is deleted")
