"""The restarts that count against a strategy's budget: those since the last submit, by the restart history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from airflow_ckpt.streams.restart_strategies import Restart
from ckpt_stream.protocol.run_files.restart_entries import RESTART, SUBMIT


def budget(history: Sequence[Mapping[str, Any]]) -> list[Restart]:
    """The restarts since the last submit."""
    begin = max((i for i, entry in enumerate(history) if entry.get("kind") == SUBMIT), default=-1)
    return [
        Restart(datetime.fromisoformat(str(entry["time"])))
        for entry in history[begin + 1 :]
        if entry.get("kind", RESTART) == RESTART
    ]
