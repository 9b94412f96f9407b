"""The library that a streaming application imports: a transform and three lines make an exactly-once stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckpt_stream.driver import run
    from ckpt_stream.records import fail_on, option, well_formed

__all__ = ["fail_on", "option", "run", "well_formed"]

_HOME = {"run": "ckpt_stream.driver", "fail_on": "ckpt_stream.records", "option": "ckpt_stream.records"}


def __getattr__(name: str) -> Any:
    """Import on first use: the ledger's readers in Airflow need none of Spark."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME.get(name, "ckpt_stream.records")), name)
