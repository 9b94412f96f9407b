"""`airflow-ckpt verify`: the verdict on a stream, as text, JSON or HTML, and as an exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from airflow_ckpt.cli.kafka_options import AsJson, Bootstrap, KafkaConfig, kafka_from_options
from airflow_ckpt.cli.output import output_for
from airflow_ckpt.cli.streams import WebHdfs


def verify(
    sink: Annotated[str, typer.Argument(help="The sink topic.")],
    sink_id: Annotated[str | None, typer.Option(help="The stream's sink_id; the stream's name if it has none.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="The stream's checkpoint, which is compared too.")] = None,
    group: Annotated[str | None, typer.Option(help="The stream's consumer group, which is compared too.")] = None,
    depth: Annotated[str, typer.Option(help="ledger: check the ledger only; sink: read the sink too.")] = "sink",
    after: Annotated[int | None, typer.Option(help="Begin after this batch, which was verified before.")] = None,
    query: Annotated[
        str | None, typer.Option(help="The query whose batch --after names; the newest in the ledger by default.")
    ] = None,
    until: Annotated[int | None, typer.Option(help="End with this batch of the newest query.")] = None,
    count_aborted: Annotated[bool, typer.Option(help="Read a second time to count aborted copies.")] = False,
    transaction_timeout: Annotated[
        float, typer.Option(help="The longest time for which a transaction may be open, in seconds.")
    ] = 60.0,
    id_path: Annotated[
        str | None,
        typer.Option(
            "--id",
            help="For a sink of another program: the place of each record's id. key, value, header:NAME, or a path "
            "into the JSON value such as $.order.id.",
        ),
    ] = None,
    source: Annotated[str | None, typer.Option(help="With --id: the topic whose ids must all be in the sink.")] = None,
    source_id: Annotated[
        str | None, typer.Option(help="The place of the id in the source's records, if it is another one.")
    ] = None,
    sequence: Annotated[bool, typer.Option(help="With --id: the ids are consecutive whole numbers.")] = False,
    html: Annotated[Path | None, typer.Option(help="Also write the report to this file.")] = None,
    bootstrap: Bootstrap = None,
    kafka_config: KafkaConfig = None,
    webhdfs: WebHdfs = None,
    as_json: AsJson = False,
) -> None:
    """Verify that every record is in the sink exactly once. Exit code 0 clean, 1 violated, 2 unknown."""
    from airflow_ckpt.checkpoint.locations import open_files, readable
    from airflow_ckpt.checkpoint.runs import current_run
    from airflow_ckpt.exceptions import CkptError
    from airflow_ckpt.verify.foreign import verify_foreign
    from airflow_ckpt.verify.report import as_html, verdict_as_text
    from airflow_ckpt.verify.subject import Subject
    from airflow_ckpt.verify.verdict import EXIT_CODES, UNKNOWN
    from airflow_ckpt.verify.verification import verify as verify_stream
    from ckpt_stream.errors import StreamError
    from ckpt_stream.protocol.verification.consistent_cut import BatchRange

    if id_path is None and (source or source_id or sequence):
        raise typer.BadParameter("--source, --source-id and --sequence need --id.")
    try:
        kafka = kafka_from_options(bootstrap, kafka_config)
        with _bar(as_json) as progress:
            if id_path is not None:
                verdict = verify_foreign(
                    kafka,
                    sink,
                    id_path=id_path,
                    source=source,
                    source_id_path=source_id,
                    group=group,
                    sequence=sequence,
                    transaction_timeout=transaction_timeout,
                    progress=progress,
                )
            else:
                name = sink_id or sink
                with readable(checkpoint) if checkpoint else nullcontext():
                    files = open_files(checkpoint, webhdfs) if checkpoint else None
                    subject = Subject(name, kafka, name, sink, group, files, transaction_timeout)
                    wanted = BatchRange(after, until, query)
                    verdict = verify_stream(
                        subject, depth=depth, batches=wanted, count_aborted=count_aborted, progress=progress
                    )
    except (CkptError, StreamError) as error:
        # There is no verdict. Exit code 1 would mean that records were lost or doubled.
        sys.stderr.write(f"airflow-ckpt: not verified: {error}\n")
        raise typer.Exit(EXIT_CODES[UNKNOWN]) from error
    document = verdict.as_dict()
    if html is not None:
        run = current_run(open_files(checkpoint, webhdfs)) if checkpoint else None
        html.write_text(as_html(document, run.batches if run else ()))
    output_for(as_json).result(document, verdict_as_text)
    raise typer.Exit(verdict.exit_code)


@contextmanager
def _bar(as_json: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar, on a terminal."""
    if as_json or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading the sink", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
