"""The edges between rooms are those of `tests/rooms.py`, and parsing a DAG is cheap."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType

import pytest

import airflow_ckpt
import ckpt_stream
from tests.rooms import (
    DYNAMIC,
    EDGES,
    FORBIDDEN,
    MAY_IMPORT,
    PACKAGES,
    ROOT,
    dynamic_imports_of,
    edges_of_all_rooms,
    forbidden_imports,
    imports_of_more_than,
    undeclared_rooms,
    used_edges,
    wrong_imports,
)
from tests.support.imports import imports_for_type_checkers
from tests.support.loading import loaded_by, modules_below

pytestmark = pytest.mark.unit

HEAVY = ("pyspark", "pyarrow", "confluent_kafka")


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
def test_every_folder_and_every_module_beside_the_rooms_is_a_room_of_its_own(package: Path) -> None:
    assert undeclared_rooms(package) == []


def test_a_room_that_is_declared_exists() -> None:
    places = {room: [p.parent / room.replace(".", "/") for p in PACKAGES] for room in EDGES}

    assert [
        r for r, paths in places.items() if not any(p.is_dir() or p.with_suffix(".py").is_file() for p in paths)
    ] == []


def test_the_edges_have_no_circle() -> None:
    assert list(TopologicalSorter(edges_of_all_rooms()).static_order())


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_a_room_that_must_not_act_on_its_machine_imports_nothing_to_do_so_with(folder: str) -> None:
    assert imports_of_more_than(ROOT / folder, MAY_IMPORT[folder]) == []


def test_streams_are_judged_by_the_time_that_is_given() -> None:
    files = sorted((ROOT / "airflow_ckpt" / "streams").rglob("*.py"))

    assert [f.name for f in files if re.search(r"\.(now|today|utcnow)\(", f.read_text())] == []


def test_only_the_places_that_need_it_import_what_their_source_does_not_name() -> None:
    found = {
        file: names
        for top in ("airflow_ckpt", "dags", "spark")
        for file, names in dynamic_imports_of(ROOT / top).items()
    }

    assert found == DYNAMIC


@pytest.mark.parametrize("module", [airflow_ckpt, ckpt_stream], ids=lambda module: str(module.__name__))
def test_a_name_that_is_imported_on_first_use_is_imported_for_type_checkers_from_the_same_module(
    module: ModuleType,
) -> None:
    on_first_use = getattr(module, "_PUBLIC", None) or module._MODULES
    assert module.__file__

    assert imports_for_type_checkers(Path(module.__file__)) == {f"{on_first_use[name]}.{name}" for name in on_first_use}


@pytest.mark.parametrize("folder", [folder for folder in FORBIDDEN if folder.startswith(("airflow_ckpt/", "spark/"))])
def test_a_room_loads_no_package_that_it_must_not_need_in_a_roundabout_way_either(folder: str) -> None:
    package = next(package for package in PACKAGES if (ROOT / folder).is_relative_to(package))
    room = folder.removeprefix("spark/").replace("/", ".")
    modules = [name for name in modules_below(package) if f"{name}.".startswith(f"{room}.")]

    assert modules
    assert loaded_by(modules, FORBIDDEN[folder]) == set()


def test_the_library_in_spark_loads_nothing_of_airflow() -> None:
    assert loaded_by(modules_below(ROOT / "spark" / "ckpt_stream"), FORBIDDEN["spark"]) == set()


def test_importing_what_a_dag_imports_loads_no_spark_arrow_or_kafka_client() -> None:
    assert loaded_by(modules_below(ROOT / "airflow_ckpt"), HEAVY) == set()


def test_the_public_names_load_no_spark_arrow_or_kafka_client() -> None:
    assert (
        loaded_by(["airflow_ckpt"], HEAVY, then="[getattr(airflow_ckpt, name) for name in airflow_ckpt.__all__]")
        == set()
    )


def test_the_call_that_ends_the_process_is_used_nowhere() -> None:
    """librdkafka's admin client dies of it when the coordinator of the group has moved; see consumer_group.py."""
    call = "list_consumer_" + "group_offsets"
    files = (
        file for folder in ("airflow_ckpt", "spark", "dags", "tests", "bench") for file in (ROOT / folder).rglob("*.py")
    )
    assert [str(file) for file in files if call in file.read_text()] == []


def test_the_provider_info_loads_no_airflow() -> None:
    assert loaded_by(["airflow_ckpt.get_provider_info"], ("airflow",)) == set()
