"""Reads the `[airflow_ckpt]` section of airflow.cfg. Every option has a working default."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path

SECTION = "airflow_ckpt"


@dataclass(frozen=True)
class Settings:
    """Settings of the deployment, the same for all DAGs."""

    #: Folders of drivers that run on this machine: log, configuration, exit status.
    work_folder: Path
    #: The folders in which a relative `application` is searched, in this order.
    application_folders: tuple[Path, ...]
    #: The Kafka connector's jars; empty: Spark downloads it (`--packages`).
    spark_jars: tuple[str, ...]
    poll_interval: float


def read_settings() -> Settings:
    from airflow.providers.common.compat.sdk import conf

    home = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
    dags = Path(conf.get("core", "dags_folder", fallback=str(home / "dags")))
    given = conf.get(SECTION, "applications_folder", fallback="")
    jars = conf.get(SECTION, "spark_jars", fallback="")
    return Settings(
        work_folder=Path(conf.get(SECTION, "work_folder", fallback="") or home / "airflow_ckpt"),
        application_folders=tuple([Path(given)] if given else [dags, dags.parent]),
        spark_jars=tuple(path for part in jars.split(",") if part for path in sorted(glob.glob(part)) or [part]),
        poll_interval=float(conf.get(SECTION, "poll_interval", fallback="10")),
    )
