"""The launcher runs on while the package is upgraded: it needs no other file of it, and no other package."""

from __future__ import annotations

import sys

import pytest

from airflow_ckpt.runners import launcher
from airflow_ckpt.runners.process import LAUNCHER
from tests.rooms import imports

pytestmark = pytest.mark.unit


def test_the_launcher_imports_the_standard_library_only() -> None:
    assert str(LAUNCHER) == launcher.__file__
    names = {name.split(".")[0] for _, name in imports(LAUNCHER)}

    assert names - sys.stdlib_module_names == set()
