"""Makes the launch of a driver: a new folder with everything that the run needs, and secrets in a private file only."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from airflow_ckpt.exceptions import BadStream
from airflow_ckpt.hooks.connections import Connections
from airflow_ckpt.hooks.library_archive import write_library
from airflow_ckpt.hooks.settings import Settings
from airflow_ckpt.hooks.submit_command import submit_command
from airflow_ckpt.runners.base import Launch, Runner
from airflow_ckpt.runners.launch_note import DOCUMENT, save_launch
from airflow_ckpt.runners.private_files import new_folder, write_private, write_secrets
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.supervision.launch_request import LaunchRequest


def make_launch(
    stream: Stream, request: LaunchRequest, connections: Connections, runner: Runner, settings: Settings
) -> Launch:
    """Write everything that a run needs into a new folder, and return its launch."""
    # Other users may read the work folder, but must not be able to put a driver into it.
    settings.work_folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    with new_folder(settings.work_folder, request.token) as folder:
        return _fill_folder(folder, stream, request, connections, runner, settings)


def _fill_folder(
    folder: Path, stream: Stream, request: LaunchRequest, connections: Connections, runner: Runner, settings: Settings
) -> Launch:
    document = request.document_for(stream, connections.kafka)
    write_private(folder / DOCUMENT, json.dumps(document, indent=1))
    secret_files = write_secrets(folder, connections.kafka)
    application = _copied_application(stream, request.application or stream.application, settings, folder)
    py_files = [*stream.py_files]
    if not application.startswith("local://"):
        py_files.insert(0, str(write_library(folder / "ckpt_stream.zip")))
    files, arguments = list(stream.files), [f"@{folder / DOCUMENT}"]
    if runner.kind == "yarn":
        # YARN expands "{{" and "}}" in arguments, so the document is passed as a file.
        files, arguments = [*files, str(folder / DOCUMENT)], [f"@{DOCUMENT}"]
    elif runner.kind == "kubernetes":
        arguments = [json.dumps(document)]
    argv = submit_command(
        stream,
        master=connections.spark.master,
        conf={**_cluster_environment(stream, runner.kind), **stream.spark_conf, **runner.properties(request.token)},
        application=application,
        arguments=arguments,
        py_files=py_files,
        files=files,
        properties_file=secret_files[0] if secret_files else None,
        settings=settings,
    )
    environment = {**_environment(connections.spark.master), **stream.env}
    save_launch(folder, argv, environment, stream.as_dict(), job=request.document is not None)
    return Launch(tuple(argv), environment, folder, tuple(secret_files))


def _copied_application(stream: Stream, application: str, settings: Settings, folder: Path) -> str:
    """Copy the application, because the folder of a DAG bundle may be gone when the driver is started again; returns the path."""
    if "://" in application and not application.startswith("file://"):
        return application
    path = Path(application.removeprefix("file://"))
    places = [path] if path.is_absolute() else [base / path for base in settings.application_folders]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        looked = ", ".join(map(str, places))
        raise BadStream(
            f"The application {application!r} of stream {stream.name!r} was not found; searched: {looked}. Correct "
            "Stream(application=...), or set applications_folder in the [airflow_ckpt] section of airflow.cfg."
        )
    copy = folder / found.name
    shutil.copyfile(found, copy)
    return str(copy)


def _cluster_environment(stream: Stream, kind: str) -> dict[str, str]:
    """In cluster mode the driver runs on another machine: its environment is passed as Spark properties."""
    prefixes = {"yarn": "spark.yarn.appMasterEnv", "kubernetes": "spark.kubernetes.driverEnv"}
    return {f"{prefixes[kind]}.{name}": value for name, value in stream.env.items()} if kind in prefixes else {}


def _environment(master: str) -> dict[str, str]:
    """The environment of a driver. The Python workers of a local master run on this machine and use Airflow's Python."""
    if master.startswith("local"):
        return {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    return {}
