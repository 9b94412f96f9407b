"""The folders of the stack: downloads in the user's cache folder, everything else in the user's data folder."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """The folder of downloads, safe to delete at any time (`AIRFLOW_CKPT_CACHE` moves it)."""
    chosen = os.environ.get("AIRFLOW_CKPT_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else platformdirs.user_cache_path("airflow-ckpt")


def stack_home() -> Path:
    """The folder of the running stack: its settings, data and logs (`AIRFLOW_CKPT_HOME` moves it)."""
    chosen = os.environ.get("AIRFLOW_CKPT_HOME")
    return Path(chosen).expanduser().absolute() if chosen else platformdirs.user_data_path("airflow-ckpt") / "stack"
