"""Commands on a stream: they find it by its checkpoint folder, or by `file.py:name` of its declaration."""

from __future__ import annotations

import functools
import getpass
import importlib.util
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from airflow_ckpt.exceptions import BadArgument, CkptError

StreamArgument = Annotated[
    str,
    typer.Argument(metavar="STREAM", help="The stream's checkpoint folder, or `file.py:name` of its declaration."),
]
WebHdfs = Annotated[str | None, typer.Option(help="For hdfs://, the NameNode's HTTP address: http://namenode:9870.")]


def declared(text: str) -> Any | None:
    """The Stream object of `file.py:name`; None if the text is a checkpoint folder."""
    from airflow_ckpt.streams.stream import Stream

    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py"):
        return None
    if not Path(path).is_file():
        raise BadArgument(f"There is no file {path}.")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise BadArgument(f"{path} cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not isinstance(found, Stream):
        others = [n for n, value in vars(module).items() if isinstance(value, Stream)]
        raise BadArgument(f"{path} has no stream called {name!r}; it has {', '.join(others) or 'none'}.")
    return found


def me() -> str:
    """The name under which a command acts on a stream."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def with_storage_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn an error of the storage in the command into one line that names the stream."""

    @functools.wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        from airflow_ckpt.checkpoint.locations import readable

        with readable(options["stream"]):
            command(*args, **options)

    return wrapped


def control_to_look(text: str, bootstrap: str | None, kafka_config: Path | None, webhdfs: str | None = None) -> Any:
    """The control of a stream without Airflow, for commands that start nothing."""
    return control_to_start(text, bootstrap, kafka_config, webhdfs)[0]


def control_to_start(
    text: str, bootstrap: str | None, kafka_config: Path | None, webhdfs: str | None = None
) -> tuple[Any, CkptError | None]:
    """The control of a stream, and the reason if it cannot be started from here.

    Only the launch that its last submit saved on this machine is started. The files beside the checkpoint are only shown.
    """
    from airflow_ckpt.checkpoint.locations import open_files
    from airflow_ckpt.checkpoint.runs import current_run
    from airflow_ckpt.cli.kafka_options import kafka_from_options
    from airflow_ckpt.cli.work_folder import work_folder
    from airflow_ckpt.runners.base import Launch
    from airflow_ckpt.supervision.control import StreamControl
    from airflow_ckpt.supervision.intent_files import read_intent
    from airflow_ckpt.supervision.launch_request import LaunchRequest
    from airflow_ckpt.supervision.relaunch import kafka_of, last_launch, relaunch, runner_of, stream_of
    from airflow_ckpt.supervision.stream_access import StreamAccess
    from ckpt_stream.errors import Unreadable

    stream = declared(text)
    checkpoint = stream.checkpoint if stream else text
    files = open_files(checkpoint, webhdfs or (stream.webhdfs if stream else None))
    intent = read_intent(files)
    try:
        run = current_run(files)
    except Unreadable:
        if intent is None:
            raise
        # The driver may have died while it wrote the record; the stream's status shows that.
        run = None
    root = work_folder(intent.token if intent else None)
    last, refusal = None, None
    try:
        last = last_launch(root, checkpoint, intent)
    except CkptError as e:
        refusal = e
    if stream is None:
        stream = last.stream if last else stream_of(checkpoint, intent, run)
    kafka = dict(last.kafka) if last else kafka_of(run)
    if bootstrap or kafka_config:
        kafka = kafka_from_options(bootstrap, kafka_config)

    def launch(request: LaunchRequest) -> Launch:
        if refusal is not None:
            raise refusal
        assert last is not None  # noqa: S101 - otherwise there is a refusal
        return relaunch(stream, request, last, kafka)

    access = StreamAccess(stream, files, kafka or None, runner_of(root, checkpoint, intent))
    return StreamControl(access, launch, me()), refusal
