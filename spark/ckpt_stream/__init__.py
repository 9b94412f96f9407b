"""The library that a streaming application imports. With it, an application is a transform and three more lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckpt_stream.application import run
    from ckpt_stream.spark.record_rules import fail_on, option, well_formed

__all__ = ["fail_on", "option", "run", "well_formed"]

_MODULES = {
    "fail_on": "ckpt_stream.spark.record_rules",
    "option": "ckpt_stream.spark.record_rules",
    "run": "ckpt_stream.application",
    "well_formed": "ckpt_stream.spark.record_rules",
}


def __getattr__(name: str) -> Any:
    """Import on first use: Airflow imports ckpt_stream.protocol and must not load Spark with it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
