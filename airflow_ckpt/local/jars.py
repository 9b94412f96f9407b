"""The jars that the stack needs beyond pyspark: resolved once, then taken from the cache folder without any network."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local import download_progress, file_lock, jar_folder
from airflow_ckpt.local.ivy import Ivy, IvyFailed
from airflow_ckpt.local.java import find_java
from airflow_ckpt.local.paths import cache_dir

Report = Callable[[str], None]

# The newest release, and the one that the tests run against.
KAFKA_VERSION = "4.3.1"
# The Log4j that this Kafka brings; without the binding for its logging interface a broker would fail in silence.
KAFKA_LOG4J_VERSION = "2.25.4"
# The only Scala that Spark 4 and Kafka 4 are built for.
SCALA_VERSION = "2.13"
# Twice what both jar sets and Ivy's copy of them take, with room for a broker's first files.
LEAST_FREE_BYTES = 1_000_000_000

_JAR_NAME = re.compile(r"(?P<artifact>.+?)-\d.*\.jar")


def kafka_broker_jars(report: Report | None = None) -> Path:
    """The folder with a Kafka broker and all it needs."""
    coordinates = [
        f"org.apache.kafka:kafka_{SCALA_VERSION}:{KAFKA_VERSION}",
        f"org.apache.logging.log4j:log4j-slf4j-impl:{KAFKA_LOG4J_VERSION}",
    ]
    return resolve(coordinates, name=f"kafka-{KAFKA_VERSION}", report=report)


def spark_kafka_jars(spark_version: str | None = None, report: Report | None = None) -> Path:
    """The folder with Spark's Kafka connector for this Spark version, without the jars that pyspark has anyway."""
    version = spark_version or _spark_version()
    coordinates = [f"org.apache.spark:spark-sql-kafka-0-10_{SCALA_VERSION}:{version}"]
    return resolve(coordinates, name=f"spark-kafka-{version}", skip_dir=pyspark_home() / "jars", report=report)


def resolve(
    coordinates: Sequence[str], *, name: str, skip_dir: Path | None = None, report: Report | None = None
) -> Path:
    """The folder `name` of the cache, holding the coordinates and all they need, less what `skip_dir` has already."""
    folder = cache_dir() / "jars" / name
    if jar_folder.is_complete(folder, coordinates):
        return folder
    say = report or _say_nothing
    with file_lock.exclusive(
        folder.with_name(f"{name}.lock"),
        if_held=lambda: say(f"another process is downloading {name}: waiting for it"),
    ) as lock:
        # Whoever held the lock before us may have done the work.
        if not jar_folder.is_complete(folder, coordinates):
            _check_disk(folder.parent, coordinates)
            _download(coordinates, folder, skip_dir, lock, say)
    return folder


def pyspark_home() -> Path:
    """The folder of the installed pyspark, found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    home = Path(spec.origin).parent if spec and spec.origin else None
    # pyspark-client alone fills the same folder, but brings no jars.
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
            f"pip install --force-reinstall 'pyspark=={version}' 'pyspark-client=={version}'"
        )
    return version


def _download(coordinates: Sequence[str], folder: Path, skip_dir: Path | None, lock: int, say: Report) -> None:
    ivy = Ivy(
        java=find_java(),
        jar=next((pyspark_home() / "jars").glob("ivy-*.jar")),
        cache=cache_dir() / "ivy" / folder.name,
        log=folder.with_name(f"{folder.name}.ivy.log"),
    )
    partial = folder.with_name(f"{folder.name}.partial")
    say(f"downloading {', '.join(coordinates)} into {folder} (once; about a minute)")
    try:
        _retrieve(ivy, coordinates, partial, lock, say)
        if skip_dir is not None:
            _drop_jars_of(skip_dir, partial)
        jar_folder.publish(partial, folder, coordinates)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    # Kept only after a failure or an interruption, where it saves what had arrived.
    shutil.rmtree(ivy.cache, ignore_errors=True)
    say(f"downloaded {len(list(folder.glob('*.jar')))} jars into {folder}")


def _retrieve(ivy: Ivy, coordinates: Sequence[str], into: Path, lock: int, say: Report) -> None:
    """Ask Ivy; if it fails over what an interrupted run left in its cache, ask again with an empty one."""
    for is_last_try in (not ivy.cache.exists(), True):
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        try:
            with download_progress.shown(f"downloading {into.stem}", ivy.cache) as renew:
                # Ivy holds the lock too: if we are killed, nobody else starts until the orphaned Ivy is done.
                ivy.retrieve(coordinates, into, keep_open=[lock], while_running=renew)
        except IvyFailed as failure:
            if is_last_try:
                raise StackError(f"cannot download {', '.join(coordinates)}: {failure}") from failure
            say("the rest of an interrupted download is of no use: starting afresh")
            shutil.rmtree(ivy.cache, ignore_errors=True)
        else:
            return


def _drop_jars_of(other: Path, folder: Path) -> None:
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
            f"{LEAST_FREE_BYTES / 1e6:.0f} MB needed. Free some, or set AIRFLOW_CKPT_CACHE to a folder on another disk"
        )


def _say_nothing(line: str) -> None:
    """The report of a caller that wants none."""
