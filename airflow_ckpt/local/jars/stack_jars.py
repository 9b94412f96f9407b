"""The jars that the stack needs besides pyspark: downloaded once, then used from the cache folder without a network."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from airflow_ckpt.exceptions import IvyFailed, StackError
from airflow_ckpt.local.announcements import Announce, quiet
from airflow_ckpt.local.jars import download_progress, jar_folder
from airflow_ckpt.local.jars.ivy import Ivy
from airflow_ckpt.local.paths import cache_dir
from airflow_ckpt.local.processes import file_lock
from airflow_ckpt.local.processes.java import find_java

# The newest release, which the tests use too.
KAFKA_VERSION = "4.3.1"
# The version of Log4j in this Kafka. Without the binding for its logging interface, a broker that fails prints nothing.
KAFKA_LOG4J_VERSION = "2.25.4"
# The only Scala that Spark 4 and Kafka 4 are built for.
SCALA_VERSION = "2.13"
# Twice the size of both jar sets and of Ivy's copy, which leaves space for a broker's first files.
LEAST_FREE_BYTES = 1_000_000_000

_JAR_NAME = re.compile(r"(?P<artifact>.+?)-\d.*\.jar")


def kafka_broker_jars(announce: Announce = quiet) -> Path:
    """The folder with the jars of a Kafka broker."""
    coordinates = [
        f"org.apache.kafka:kafka_{SCALA_VERSION}:{KAFKA_VERSION}",
        f"org.apache.logging.log4j:log4j-slf4j-impl:{KAFKA_LOG4J_VERSION}",
    ]
    return resolve(coordinates, name=f"kafka-{KAFKA_VERSION}", announce=announce)


def spark_kafka_jars(spark_version: str | None = None, announce: Announce = quiet) -> Path:
    """The folder with Spark's Kafka connector for this Spark version, without the jars that pyspark already has."""
    version = spark_version or _spark_version()
    coordinates = [f"org.apache.spark:spark-sql-kafka-0-10_{SCALA_VERSION}:{version}"]
    return resolve(coordinates, name=f"spark-kafka-{version}", skip_dir=pyspark_home() / "jars", announce=announce)


def resolve(coordinates: Sequence[str], *, name: str, skip_dir: Path | None = None, announce: Announce = quiet) -> Path:
    """The folder `name` of the cache with the jars of the coordinates and their dependencies, without the jars in `skip_dir`."""
    folder = cache_dir() / "jars" / name
    if jar_folder.is_complete(folder, coordinates):
        return folder
    with file_lock.exclusive(
        folder.with_name(f"{name}.lock"),
        if_held=lambda: announce(f"another process is downloading {name}: waiting for it"),
    ) as lock:
        # The process that held the lock before may have downloaded them.
        if not jar_folder.is_complete(folder, coordinates):
            _check_disk(folder.parent, coordinates)
            _download(coordinates, folder, skip_dir, lock, announce)
    return folder


def pyspark_home() -> Path:
    """The folder of the installed pyspark, found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    home = Path(spec.origin).parent if spec and spec.origin else None
    # pyspark-client alone uses the same folder, but has no jars.
    if home is None or not any((home / "jars").glob("ivy-*.jar")):
        raise StackError("the stack needs pyspark, which is not installed: pip install 'airflow-ckpt[local]'")
    _spark_version()
    return home


def _spark_version() -> str:
    """The version of pyspark. pyspark-client writes into the same folder, so it must be of the same version."""
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        raise StackError("the stack needs pyspark, which is not installed: pip install 'airflow-ckpt[local]'") from None
    try:
        client = importlib.metadata.version("pyspark-client")
    except importlib.metadata.PackageNotFoundError:
        return version
    if client != version:
        raise StackError(
            f"pyspark {version} and pyspark-client {client} overwrite each other's files: install equal versions, "
            f"pip install --force-reinstall 'pyspark=={version}' 'pyspark-client=={version}'",
            kind="unequal_versions",
        )
    return version


def _download(coordinates: Sequence[str], folder: Path, skip_dir: Path | None, lock: int, announce: Announce) -> None:
    ivy = Ivy(
        java=find_java(),
        jar=next((pyspark_home() / "jars").glob("ivy-*.jar")),
        cache=cache_dir() / "ivy" / folder.name,
        log=folder.with_name(f"{folder.name}.ivy.log"),
    )
    partial = folder.with_name(f"{folder.name}.partial")
    announce(f"downloading {', '.join(coordinates)} into {folder} (once; about a minute)")
    try:
        _retrieve(ivy, coordinates, partial, lock, announce)
        if skip_dir is not None:
            _remove_jars_of(skip_dir, partial)
        jar_folder.publish(partial, folder, coordinates)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    # Ivy's cache is kept only after a failure or an interruption, so that finished downloads are not repeated.
    shutil.rmtree(ivy.cache, ignore_errors=True)
    announce(f"downloaded {len(list(folder.glob('*.jar')))} jars into {folder}")


def _retrieve(ivy: Ivy, coordinates: Sequence[str], into: Path, lock: int, announce: Announce) -> None:
    """Run Ivy; if it fails because of files of an interrupted run in its cache, run it again with an empty cache."""
    for is_last_try in (not ivy.cache.exists(), True):
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        try:
            with download_progress.shown(f"downloading {into.stem}", ivy.cache) as renew:
                # Ivy inherits the lock: if this process is killed, no other download starts until the orphaned Ivy ends.
                ivy.retrieve(coordinates, into, keep_open=[lock], while_running=renew)
        except IvyFailed as failure:
            if is_last_try:
                raise StackError(f"cannot download {', '.join(coordinates)}: {failure}") from failure
            announce("the files of an interrupted download cannot be used: starting again")
            shutil.rmtree(ivy.cache, ignore_errors=True)
        else:
            return


def _remove_jars_of(other: Path, folder: Path) -> None:
    present = {_artifact(jar) for jar in other.glob("*.jar")}
    for jar in folder.glob("*.jar"):
        if _artifact(jar) in present:
            jar.unlink()


def _artifact(jar: Path) -> str:
    parts = _JAR_NAME.fullmatch(jar.name)
    return parts["artifact"] if parts else jar.stem


def _check_disk(folder: Path, coordinates: Sequence[str]) -> None:
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE_BYTES:
        raise StackError(
            f"no room to download {', '.join(coordinates)}: {free / 1e6:.0f} MB free in {folder}, "
            f"{LEAST_FREE_BYTES / 1e6:.0f} MB needed. Free some, or set AIRFLOW_CKPT_CACHE to a folder on another disk",
            kind="no_room",
        )
