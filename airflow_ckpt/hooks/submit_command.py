"""The spark-submit command of a driver, as Airflow's Spark provider builds it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from airflow_ckpt.exceptions import NotInstalled
from airflow_ckpt.hooks.settings import Settings
from airflow_ckpt.streams.stream import Stream

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"


def submit_command(
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
    """The command, from the stream, its Spark connection and the settings of the deployment."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    if master.startswith("k8s://") and importlib.util.find_spec("airflow.providers.cncf") is None:
        # Without that provider, SparkSubmitHook raises a NameError.
        raise NotInstalled(
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
        # With a properties file, spark-submit reads the deployment's spark-defaults.conf only if this option is set.
        argv.insert(1, "--load-spark-defaults")
    return argv


def _binary(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = shutil.which(name) or (str(beside) if beside.exists() else None)
    if found is None:
        raise NotInstalled(
            f"{name} is not on the PATH of this Airflow worker. Install pyspark (`pip install 'airflow-ckpt[local]'`) or a "
            "Spark distribution there."
        )
    return found
