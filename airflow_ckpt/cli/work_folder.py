"""Finds the folder of Airflow's drivers on this machine, without importing Airflow."""

from __future__ import annotations

import configparser
import os
from pathlib import Path

from airflow_ckpt.local.paths import stack_home

OPTION = "AIRFLOW__AIRFLOW_CKPT__WORK_FOLDER"


def work_folder(token: str | None = None) -> Path:
    """The work folder of Airflow's settings, or the embedded stack's if only that has a driver with this token."""
    configured = _configured()
    embedded = stack_home() / "airflow" / "airflow_ckpt"
    plain = token is not None and Path(token).name == token
    return (
        embedded
        if plain and (embedded / str(token)).is_dir() and not (configured / str(token)).is_dir()
        else configured
    )


def _configured() -> Path:
    home = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
    given = os.environ.get(OPTION)
    if not given:
        # Airflow doubles the percent signs of its settings.
        parser = configparser.RawConfigParser(strict=False)
        parser.read(Path(os.environ.get("AIRFLOW_CONFIG", home / "airflow.cfg")).expanduser())
        given = parser.get("airflow_ckpt", "work_folder", fallback="").replace("%%", "%")
    return Path(given).expanduser() if given else home / "airflow_ckpt"
