"""`airflow-ckpt inspect`: the position of a checkpoint, its content, and its problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_ckpt.cli.kafka_options import AsJson
from airflow_ckpt.cli.output import Result, output_for
from airflow_ckpt.cli.streams import WebHdfs

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
    from ckpt_stream.protocol.checkpoint.checkpoint_reader import CheckpointFinding

Location = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="The stream's checkpoint folder, with its path in Spark.")
]


def inspect(checkpoint: Location, webhdfs: WebHdfs = None, as_json: AsJson = False) -> None:
    """Show a checkpoint's position, offsets, state and runs. Exit code 1 if it has a problem."""
    from dataclasses import asdict

    from airflow_ckpt.checkpoint.locations import open_files, readable
    from airflow_ckpt.checkpoint.state import read_state
    from ckpt_stream.protocol.checkpoint.checkpoint_reader import read_checkpoint

    files = open_files(checkpoint, webhdfs)
    with readable(checkpoint):
        found = read_checkpoint(files, with_start=True)
        state = [asdict(operator) for operator in read_state(files)]
        runs, more = _runs(files)
    findings = [asdict(finding) for finding in (*found.findings, *more)]
    value = {"checkpoint": checkpoint, **found.as_dict(), "state": state, **runs, "findings": findings}
    output_for(as_json).result(value, _as_text)
    raise typer.Exit(1 if findings else 0)


def _runs(files: FsspecFiles) -> tuple[dict[str, Any], list[CheckpointFinding]]:
    """The number of runs and the current run. A run record that cannot be read is a finding."""
    from airflow_ckpt.checkpoint.runs import current_run, run_names
    from ckpt_stream.errors import RunRecordError
    from ckpt_stream.protocol.checkpoint.checkpoint_reader import CheckpointFinding
    from ckpt_stream.protocol.run_files.record_files import RUNS

    count = len(run_names(files))
    try:
        run = current_run(files)
    except (RunRecordError, UnicodeDecodeError) as e:
        helps = "`airflow-ckpt history` shows which runs can be read"
        return {"runs": count, "run": None}, [CheckpointFinding("run_record", str(e), helps, RUNS)]
    if run is None:
        return {"runs": count, "run": None}, []
    failure = f"{run.failure.error}: {run.failure.message}" if run.failure else None
    return {
        "runs": count,
        "run": {"run": run.run, "state": run.state, "heartbeat": run.heartbeat, "failure": failure},
    }, []


def _as_text(value: Result) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [_summary(value)]
    if value["end"] or value["start"]:
        parts.append(_offsets(value))
    if value["state"]:
        parts.append(_state(value["state"]))
    if not value["findings"]:
        parts.append(Text("nothing is wrong with this checkpoint", "green"))
    return Group(*parts, *findings_as_text(value["findings"]))


def _summary(value: Result) -> Table:
    from rich.table import Table
    from rich.text import Text

    run = value["run"]
    doubt = value["in_doubt"]
    rows = (
        ("query", value["query_id"]),
        ("batches committed", f"{value['batches']:,}"),
        ("newest batch", value["newest"]),
        ("newest committed batch", value["committed"]),
        (
            "in doubt",
            "none" if doubt is None else f"batch {doubt}: planned and not committed; a restart looks into the ledger",
        ),
        ("newest batch begun", as_time(value["batch_timestamp_ms"])),
        ("watermark", as_time(value["watermark_ms"])),
        ("next watermark", as_time(value["next_watermark_ms"])),
        ("log versions", f"offsets {value['offset_log_version'] or '-'}, commits {value['commit_log_version'] or '-'}"),
        ("runs", f"{value['runs']}" + (f", the current one {run['run']} is {run['state']}" if run else "")),
        ("failure", run["failure"] if run and run["failure"] else None),
    )
    table = Table(title=Text(f"checkpoint {value['checkpoint']}"), show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for label, fact in rows:
        if fact is not None or label != "failure":
            table.add_row(label, Text("-" if fact is None else str(fact)))
    return table


def _offsets(value: Result) -> Table:
    from rich.table import Table
    from rich.text import Text

    # At most, because the markers of transactions have offsets too.
    table = Table(title=f"offsets of batch {value['newest']}")
    for column in ("topic", "partition", "start", "end", "records, at most"):
        table.add_column(column, justify="left" if column == "topic" else "right", overflow="fold")
    for topic, partition, start, end in _partitions(value["start"], value["end"]):
        records = None if start is None or end is None else end - start
        numbers = ("-" if number is None else f"{number:,}" for number in (start, end, records))
        table.add_row(Text(topic), Text(partition), *numbers)
    return table


Partition = tuple[str, str, int | None, int | None]


def _partitions(start: Mapping[str, Any], end: Mapping[str, Any]) -> Iterator[Partition]:
    for topic in sorted({*start, *end}):
        begin, finish = start.get(topic, {}), end.get(topic, {})
        for partition in sorted({*begin, *finish}, key=lambda p: (len(p), p)):
            yield topic, partition, begin.get(partition), finish.get(partition)


def _state(operators: list[dict[str, Any]]) -> Table:
    from rich.filesize import decimal
    from rich.table import Table
    from rich.text import Text

    table = Table(title="state")
    for column in ("operator", "name", "stores", "partitions", "version", "size", "files"):
        table.add_column(column, overflow="fold")
    for one in operators:
        version = "-" if one["version"] is None else str(one["version"])
        table.add_row(
            str(one["operator"]),
            Text(one["name"] or "-"),
            Text(", ".join(one["stores"])),
            str(one["partitions"]),
            version,
            decimal(one["size"]),
            f"{one['files']:,}",
        )
    return table


def findings_as_text(findings: list[dict[str, Any]]) -> Iterator[RenderableType]:
    """One line per finding."""
    from rich.text import Text

    for finding in findings:
        line = Text.assemble((f"{finding['kind']}: ", "bold red"), finding["what"])
        if finding["helps"]:
            line.append(f" What helps: {finding['helps']}.", "dim")
        yield line


def as_time(milliseconds: int | None) -> str | None:
    """A time in Spark's files as text; 0 means no time."""
    if not milliseconds:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
