"""The edges between rooms are those of `tests/rooms.py`, and parsing a DAG is cheap."""

from __future__ import annotations

import json
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.rooms import EDGES, FORBIDDEN, PACKAGES, ROOT, forbidden_imports, imports, used_edges, wrong_imports

pytestmark = pytest.mark.unit

HEAVY = ("pyspark", "pyarrow", "confluent_kafka")


def modules_below(package: Path) -> list[str]:
    """The dotted names of all modules of a package that is in its repository's root."""
    root = package.parent
    files = (file.relative_to(root).with_suffix("") for file in sorted(package.rglob("*.py")))
    return [".".join(file.parts[:-1] if file.name == "__init__" else file.parts) for file in files]


def loaded_by(modules: list[str], watched: tuple[str, ...], *, path: Path = ROOT) -> set[str]:
    """Which of the watched packages a new Python has after it imported these modules."""
    code = (
        "import importlib, json, sys\n"
        f"sys.path.insert(0, {str(path)!r})\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(json.dumps([name for name in {watched!r} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def modules_of(*packages: str) -> list[str]:
    """The modules of those subpackages of airflow_ckpt that exist."""
    return [
        name
        for name in modules_below(ROOT / "airflow_ckpt")
        if name.startswith(tuple(f"airflow_ckpt.{p}" for p in packages))
    ]


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_a_room_never_imports_a_package_that_it_must_not_need(folder: str) -> None:
    assert forbidden_imports(ROOT / folder, FORBIDDEN[folder]) == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.name))
def test_no_room_imports_a_room_that_it_must_not_know(package: Path) -> None:
    assert wrong_imports(package) == []


def test_every_edge_is_used() -> None:
    used = {(room, other) for package in PACKAGES for room, other, _ in used_edges(package)}

    assert {(room, other) for room, others in EDGES.items() for other in others} - used == set()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.name))
def test_every_folder_is_a_room_of_its_own(package: Path) -> None:
    folders = {f"{package.name}.{path.parent.name}" for path in package.glob("*/__init__.py")}

    assert folders <= set(EDGES)


def test_the_edges_have_no_circle() -> None:
    assert list(TopologicalSorter(EDGES).static_order())


def test_a_lower_layer_loads_no_airflow_in_a_roundabout_way_either() -> None:
    assert loaded_by(modules_of("checkpoint", "streams", "verify", "kafka"), ("airflow",)) == set()


def test_importing_what_a_dag_imports_loads_no_spark_arrow_or_kafka_client() -> None:
    assert loaded_by(modules_of("operators", "sensors", "triggers", "hooks", "streams"), HEAVY) == set()


def test_the_call_that_ends_the_process_is_used_nowhere() -> None:
    """librdkafka's admin client dies of it when the coordinator of the group has moved; see consumer_group.py."""
    call = "list_consumer_" + "group_offsets"
    files = (
        file for folder in ("airflow_ckpt", "spark", "dags", "tests", "bench") for file in (ROOT / folder).rglob("*.py")
    )
    assert [str(file) for file in files if call in file.read_text()] == []


def test_the_provider_info_loads_no_airflow() -> None:
    assert loaded_by(["airflow_ckpt.get_provider_info"], ("airflow",)) == set()


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
