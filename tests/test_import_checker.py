"""The checks of imports between rooms see through every detour: each one is tried on a small tree."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests import rooms
from tests.rooms import (
    dynamic_imports_of,
    edges_of_all_rooms,
    forbidden_imports,
    imports_of_more_than,
    undeclared_rooms,
    wrong_imports,
)
from tests.support.imports import imports
from tests.support.loading import loaded_by, modules_below

pytestmark = pytest.mark.unit

HEAVY = ("pyspark", "pyarrow", "confluent_kafka")


def written(root: Path, name: str, text: str = "") -> Path:
    """A file of a small tree, which has no `__init__.py`; the top folder of the tree."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return root / name.split("/")[0]


@pytest.mark.parametrize(
    "statement",
    [
        "import airflow",
        "import airflow.models as m",
        "from airflow.sdk import DAG",
        "def later():\n    from airflow.sdk import DAG",
        "if TYPE_CHECKING:\n    import airflow",
        "import importlib\nimportlib.import_module('airflow.sdk')",
    ],
)
def test_the_checker_catches_a_forbidden_import(tmp_path: Path, statement: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "module.py").write_text(statement)

    assert len(forbidden_imports(tmp_path, ("airflow",))) == 1


@pytest.mark.parametrize(
    "statement", ["import airflow_ckpt", "from . import airflow", "from .airflow import x", "airflow = 1"]
)
def test_the_checker_lets_a_lookalike_pass(tmp_path: Path, statement: str) -> None:
    (tmp_path / "module.py").write_text(statement)

    assert forbidden_imports(tmp_path, ("airflow",)) == []


def test_the_cost_check_catches_a_heavy_import_that_hides_behind_another_module(tmp_path: Path) -> None:
    package = tmp_path / "heavy_example"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "operator.py").write_text("from heavy_example import helper")
    (package / "helper.py").write_text("import confluent_kafka")

    assert modules_below(package) == ["heavy_example", "heavy_example.helper", "heavy_example.operator"]
    assert loaded_by(["heavy_example.operator"], HEAVY, path=tmp_path) == {"confluent_kafka"}


@pytest.mark.parametrize(
    "statement",
    [
        "from airflow_ckpt.supervision import control",
        "from airflow_ckpt import supervision",
        "import airflow_ckpt.supervision.control as c",
        "def later():\n    from airflow_ckpt.supervision.control import StreamControl",
        "if TYPE_CHECKING:\n    from airflow_ckpt.supervision import control",
        "from ..supervision import control",
        "from .. import supervision",
        "import importlib\nimportlib.import_module('airflow_ckpt.supervision')",
        "from importlib import import_module\nimport_module(name='airflow_ckpt.supervision')",
    ],
)
def test_the_checker_catches_an_edge_that_is_not_declared(tmp_path: Path, statement: str) -> None:
    room = tmp_path / "airflow_ckpt" / "streams"
    room.mkdir(parents=True)
    (room / "module.py").write_text(statement)

    assert len(wrong_imports(tmp_path / "airflow_ckpt")) == 1


def test_the_checker_knows_the_rooms_inside_the_protocol(tmp_path: Path) -> None:
    package = tmp_path / "ckpt_stream"
    for folder in ("protocol/checkpoint", "kafka"):
        (package / folder).mkdir(parents=True)
    (package / "protocol" / "checkpoint" / "module.py").write_text("import ckpt_stream.protocol.ledger.decision")
    (package / "kafka" / "module.py").write_text("import ckpt_stream.protocol.ledger.decision")

    (found,) = wrong_imports(package)
    assert found == "ckpt_stream.protocol.checkpoint.module:1 imports ckpt_stream.protocol.ledger.decision"


def test_a_relative_import_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("from . import a\nfrom .b import c\nfrom ..d import e")

    assert [name for _, name in imports(tmp_path / "__init__.py", "package.room")] == [
        "package.room.a", "package.room.b.c", "package.d.e",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "room"),
    [
        ("airflow_ckpt/helpers.py", "airflow_ckpt.helpers"),
        ("airflow_ckpt/newroom/thing.py", "airflow_ckpt.newroom"),
        ("airflow_ckpt/newroom/__init__.py", "airflow_ckpt.newroom"),
        ("ckpt_stream/protocol/newroom/thing.py", "ckpt_stream.protocol.newroom"),
        ("ckpt_stream/protocol/newroom/__init__.py", "ckpt_stream.protocol.newroom"),
        ("airflow_ckpt/verify/checks/more/thing.py", "airflow_ckpt.verify.checks.more"),
        ("ckpt_stream/helpers.py", "ckpt_stream.helpers"),
    ],
)
def test_a_room_that_is_not_declared_is_seen(tmp_path: Path, name: str, room: str) -> None:
    assert undeclared_rooms(written(tmp_path, name)) == [room]


@pytest.mark.parametrize(
    "name", ["airflow_ckpt/__init__.py", "airflow_ckpt/metrics.py", "airflow_ckpt/verify/scan/more.py"]
)
def test_a_file_of_a_declared_room_is_no_room_of_its_own(tmp_path: Path, name: str) -> None:
    assert undeclared_rooms(written(tmp_path, name)) == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("airflow_ckpt/verify/checks/topics_check.py", "airflow_ckpt.verify.verification"),
        ("airflow_ckpt/verify/scan/sink_scan.py", "airflow_ckpt.verify.checks.sink_check"),
        ("airflow_ckpt/verify/verdict.py", "airflow_ckpt.verify.report"),
        ("airflow_ckpt/local/processes/java.py", "airflow_ckpt.local.jars.ivy"),
        ("airflow_ckpt/local/kafka/cluster.py", "airflow_ckpt.local.airflow.rest_api"),
        ("airflow_ckpt/local/paths.py", "airflow_ckpt.local.stack"),
        ("ckpt_stream/protocol/offsets.py", "ckpt_stream.protocol.ledger.decision"),
        ("ckpt_stream/protocol/crash_points.py", "ckpt_stream.machine.crashes"),
    ],
)
def test_an_edge_between_inner_rooms_that_is_not_declared_is_seen(tmp_path: Path, module: str, name: str) -> None:
    assert len(wrong_imports(written(tmp_path, module, f"import {name}"))) == 1


def test_a_module_that_is_used_without_an_import_of_its_own_is_seen(tmp_path: Path) -> None:
    text = "import airflow_ckpt\nairflow_ckpt.supervision.control.StreamControl"

    assert "airflow_ckpt.local.stack:2 imports airflow_ckpt.supervision.control.StreamControl" in wrong_imports(
        written(tmp_path, "airflow_ckpt/local/stack.py", text)
    )


@pytest.mark.parametrize(
    "statement",
    [
        'from importlib import import_module as im; im("airflow_ckpt.supervision.control")',
        'from importlib import import_module; import_module(".supervision", "airflow_ckpt")',
        'import importlib; importlib.import_module("airflow_ckpt." + "supervision")',
        "import importlib as i; i.import_module(name)",
        "from importlib import util; util.module_from_spec(spec)",
        "import importlib.util; importlib.util.spec_from_file_location(name, path)",
        "import importlib.util as u",
        "import importlib.metadata; importlib.import_module(name)",
        "import importlib.metadata; importlib.reload(module)",
        "from importlib import *",
        "import runpy",
        "from runpy import run_module",
        "import pkgutil",
        'from pkgutil import resolve_name; resolve_name("airflow_ckpt.supervision.control")',
        '__import__("airflow_ckpt.supervision.control")',
        "load = __import__",
        "import builtins",
        'exec("import airflow_ckpt.supervision")',
        "eval(text)",
        'import sys; sys.modules["airflow_ckpt.supervision.control"].StreamControl',
        "from sys import modules",
        "from airflow.utils.module_loading import import_string",
        "def later():\n    spec.loader.exec_module(module)",
    ],
)
def test_an_import_of_what_the_source_does_not_name_is_seen(tmp_path: Path, statement: str) -> None:
    folder = written(tmp_path, "airflow_ckpt/streams/module.py", statement)

    assert list(dynamic_imports_of(folder)) == ["airflow_ckpt/streams/module.py"]


@pytest.mark.parametrize(
    "statement",
    [
        "import importlib.metadata; importlib.metadata.version(name)",
        "from importlib import metadata",
        'import importlib.util; importlib.util.find_spec("pyspark")',
        "import re; re.compile(text)",
        "import sys; sys.path; sys.argv",
        "def import_it(): ...",
    ],
)
def test_a_look_at_what_is_installed_is_no_import(tmp_path: Path, statement: str) -> None:
    assert dynamic_imports_of(written(tmp_path, "airflow_ckpt/streams/module.py", statement)) == {}


@pytest.mark.parametrize("package", ["tests", "bench", "scripts"])
def test_shipped_code_that_imports_what_is_not_shipped_is_seen(tmp_path: Path, package: str) -> None:
    folder = written(tmp_path, "airflow_ckpt/streams/module.py", f"from {package}.support import x")

    assert len(forbidden_imports(folder, rooms.FORBIDDEN["airflow_ckpt"])) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "import os",
        "import signal",
        "from os import kill",
        "import subprocess",
        "import socket",
        "from pathlib import Path",
        "import threading",
        "import fsspec",
        'open("/proc/1/stat")',
    ],
)
@pytest.mark.parametrize("folder", rooms.MAY_IMPORT)
def test_what_acts_on_the_machine_is_seen_in_a_room_that_must_not(tmp_path: Path, folder: str, statement: str) -> None:
    written(tmp_path, f"{folder}/module.py", statement)

    assert len(imports_of_more_than(tmp_path / folder, rooms.MAY_IMPORT[folder])) == 1


def test_a_circle_between_an_inner_room_and_a_room_outside_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    below = {"a.outside": ("a.house",), "a.house": (), "a.house.attic": ("a.house", "a.outside")}
    monkeypatch.setattr(rooms, "EDGES", below)

    with pytest.raises(CycleError):
        list(TopologicalSorter(edges_of_all_rooms()).static_order())
