"""Makes a spark-submit out of a stream: through Airflow's SparkSubmitHook, with secrets in a private file only."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.hooks.connections import Connections
from airflow_ckpt.hooks.settings import Settings
from airflow_ckpt.runners.base import Launch, Runner
from airflow_ckpt.runners.noted_launch import note_launch
from airflow_ckpt.runners.private_files import write_private, write_secrets
from airflow_ckpt.streams.control import Order
from airflow_ckpt.streams.stream import Stream

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"


def make_launch(stream: Stream, order: Order, connections: Connections, runner: Runner, settings: Settings) -> Launch:
    """Write everything that this run needs into a folder of its own, and return the command."""
    # Other users may look into the work folder, but not put a driver into it.
    settings.work_folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    folder = settings.work_folder / order.token
    folder.mkdir(mode=0o700)
    try:
        return _fill(folder, stream, order, connections, runner, settings)
    except BaseException:
        # No driver will come to read the secrets, and no launcher to delete them.
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _fill(
    folder: Path, stream: Stream, order: Order, connections: Connections, runner: Runner, settings: Settings
) -> Launch:
    document = dict(order.document or json.loads(stream.document(connections.kafka, order.token)))
    if order.accepted_loss:
        document["accepted_loss"] = [one.as_dict() for one in order.accepted_loss]
    write_private(folder / "stream.json", json.dumps(document, indent=1))
    secret_files = write_secrets(folder, connections.kafka)
    application = _application(stream, order.application or stream.application, settings, folder)
    py_files = [*stream.py_files]
    if not application.startswith("local://"):
        py_files.insert(0, str(_zip_library(folder / "ckpt_stream.zip")))
    files, arguments = list(stream.files), [f"@{folder / 'stream.json'}"]
    if runner.kind == "yarn":
        # YARN expands "{{" and "}}" in arguments, so the document goes as a file.
        files, arguments = [*files, str(folder / "stream.json")], ["@stream.json"]
    elif runner.kind == "kubernetes":
        arguments = [json.dumps(document)]
    argv = _command(
        stream,
        master=connections.spark.master,
        conf={**_cluster_environment(stream, runner.kind), **stream.spark_conf, **runner.properties(order.token)},
        application=application,
        arguments=arguments,
        py_files=py_files,
        files=files,
        properties_file=secret_files[0] if secret_files else None,
        settings=settings,
    )
    environment = {**_environment(connections.spark.master), **stream.env}
    note_launch(folder, argv, environment, stream.as_dict(), job=order.document is not None)
    return Launch(tuple(argv), environment, folder, tuple(secret_files))


def _application(stream: Stream, application: str, settings: Settings, folder: Path) -> str:
    """A copy of the application: a DAG bundle's folder may be gone when the driver is started again."""
    if "://" in application and not application.startswith("file://"):
        return application
    path = Path(application.removeprefix("file://"))
    places = [path] if path.is_absolute() else [base / path for base in settings.application_folders]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        looked = ", ".join(map(str, places))
        raise CkptError(
            f"The application {application!r} of stream {stream.name!r} is not there; looked at: {looked}. Correct "
            "Stream(application=...), or set applications_folder in the [airflow_ckpt] section of airflow.cfg."
        )
    copy = folder / found.name
    shutil.copyfile(found, copy)
    return str(copy)


def _zip_library(path: Path) -> Path:
    """ckpt_stream as one file, so that a cluster needs nothing but Python, pyspark and confluent-kafka."""
    import ckpt_stream

    package = Path(str(ckpt_stream.__file__)).parent
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in sorted(package.rglob("*.py")):
            archive.write(module, module.relative_to(package.parent))
    return path


def _command(
    stream: Stream,
    *,
    master: str,
    conf: Mapping[str, str],
    application: str,
    arguments: list[str],
    py_files: list[str],
    files: list[str],
    properties_file: str | None,
    settings: Settings,
) -> list[str]:
    """The spark-submit command as Airflow's Spark provider builds it from the connection."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    if master.startswith("k8s://") and importlib.util.find_spec("airflow.providers.cncf") is None:
        # SparkSubmitHook would end with a NameError.
        raise CkptError(
            "A stream on Kubernetes needs Airflow's provider for it: `pip install 'airflow-ckpt[kubernetes]'`."
        )
    jars, packages = list(stream.jars), list(stream.packages)
    if not jars and not packages:
        jars = list(settings.spark_jars)
        packages = [] if jars else [f"{CONNECTOR}:{importlib.metadata.version('pyspark-client')}"]
    hook = SparkSubmitHook(
        conn_id=stream.spark_conn_id,
        conf=dict(conf),
        name=stream.name,
        jars=",".join(jars) or None,
        packages=",".join(packages) or None,
        py_files=",".join(py_files) or None,
        files=",".join(files) or None,
        application_args=arguments,
        properties_file=properties_file,
    )
    argv = [str(part) for part in hook._build_spark_submit_command(application)]
    argv[0] = _binary(argv[0])
    argv[argv.index("--master") + 1] = master
    if properties_file:
        # A properties file of our own would hide the deployment's spark-defaults.conf.
        argv.insert(1, "--load-spark-defaults")
    return argv


def _binary(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = shutil.which(name) or (str(beside) if beside.exists() else None)
    if found is None:
        raise CkptError(
            f"{name} is not on the PATH of this Airflow worker. Install pyspark (`pip install 'airflow-ckpt[local]'`) or a "
            "Spark distribution there."
        )
    return found


def _cluster_environment(stream: Stream, kind: str) -> dict[str, str]:
    """In cluster mode the driver runs elsewhere: its environment is given as Spark properties."""
    prefixes = {"yarn": "spark.yarn.appMasterEnv", "kubernetes": "spark.kubernetes.driverEnv"}
    return {f"{prefixes[kind]}.{name}": value for name, value in stream.env.items()} if kind in prefixes else {}


def _environment(master: str) -> dict[str, str]:
    """Workers of a local master are processes of this machine: let them run the Python that Airflow runs."""
    if master.startswith("local"):
        return {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    return {}
