"""The page about the architecture: its rooms and its walks are those of the source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.rooms import EDGES, FORBIDDEN, PACKAGES, imports, module_of
from tests.support.docs_pages import script

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PICTURE = (ROOT / "docs" / "rooms.svg").read_text()
#: Their lines would go everywhere (the errors), or they are only what the others are reached through.
NOT_DRAWN = (
    "ckpt_stream",
    "ckpt_stream.errors",
    "airflow_ckpt",
    "airflow_ckpt.exceptions",
    "airflow_ckpt.get_provider_info",
)
WALKS = ("The walk of a batch", "The walk of a failure")
#: Steps of a walk that no earlier step imports, and how they are reached.
REACHED_OTHERWISE = {
    "spark/ckpt_stream/driver/exactly_once.py": "driver/new_sink.py passes it to the sink",
    "airflow_ckpt/triggers/progress.py": "another process: the triggerer",
    "airflow_ckpt/operators/supervise.py": "another process: a worker",
    "airflow_ckpt/hooks/launch.py": "hooks/stream.py passes it to the control",
    "airflow_ckpt/runners/process.py": "hooks/stream.py passes it to the control",
}


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def steps(title: str) -> list[str]:
    """The file of each step of a walk."""
    return re.findall(r"^\d+\. `([\w/]+\.py)`", section(title), re.MULTILINE)


def imported_files(file: str) -> set[str]:
    """The files of our packages that a file imports itself."""
    package = next(package for package in PACKAGES if (ROOT / file).is_relative_to(package))
    found = set()
    for _, name in imports(ROOT / file, module_of(ROOT / file, package)):
        for module in (name, name.rpartition(".")[0]):  # a module, or a name in a module
            paths = (other.parent / f"{module.replace('.', '/')}.py" for other in PACKAGES)
            found |= {str(path.relative_to(ROOT)) for path in paths if path.is_file()}
    return found


@pytest.mark.parametrize(("title", "most"), [(WALKS[0], 12), (WALKS[1], 16)])
def test_a_walk_names_existing_files_and_not_too_many(title: str, most: int) -> None:
    files = steps(title)

    assert len(files) == len(re.findall(r"^\d+\. ", section(title), re.MULTILINE))
    assert 5 < len(files) <= most
    assert len(set(files)) == len(files)
    assert [name for name in files if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("title", WALKS)
def test_each_step_of_a_walk_is_imported_by_an_earlier_one(title: str) -> None:
    files = steps(title)
    reached = {at: set().union(*map(imported_files, files[:at])) for at in range(len(files))}

    assert [name for at, name in enumerate(files[1:], 1) if name not in reached[at] | REACHED_OTHERWISE.keys()] == []


def test_only_what_no_earlier_step_imports_is_an_exception() -> None:
    needed = set()
    for files in map(steps, WALKS):
        for at, name in enumerate(files):
            if at and name not in set().union(*map(imported_files, files[:at])):
                needed.add(name)

    assert needed == REACHED_OTHERWISE.keys()


def test_the_table_has_every_room_and_every_edge() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)

    assert [room for room, _ in rows] == list(EDGES)
    assert {room: tuple(re.findall(r"`([\w.]+)`", cell)) for room, cell in rows} == EDGES


def test_contributors_read_what_each_room_never_imports() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (`(?:airflow_ckpt|spark)[^|]*) \| ([^|]+) \|$", text, re.MULTILINE)
    found = {
        folder: sorted(re.findall(r"`(\w+)`", never))
        for cell, never in rows
        for folder in re.findall(r"`([\w/]+)`", cell)
    }

    assert found == {folder: sorted(never) for folder, never in FORBIDDEN.items()}


def boxes() -> list[tuple[str, ...]]:
    """The rooms of each box of the picture."""
    return [tuple(rooms.split()) for rooms in re.findall(r'<rect [^>]*data-rooms="([^"]+)"', PICTURE)]


def reduced(edges: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """The edges without those that follow from others."""

    def reached(name: str) -> set[str]:
        return edges[name].union(*map(reached, edges[name]))

    return {(a, c) for a in edges for c in edges[a] if not any(c in reached(b) for b in edges[a] - {c})}


def edges_between(boxes: Iterable[tuple[str, ...]]) -> set[tuple[str, str]]:
    name_of = {room: rooms[0] for rooms in boxes for room in rooms}
    edges: dict[str, set[str]] = {name: set() for name in name_of.values()}
    for room, name in name_of.items():
        edges[name] |= {name_of[other] for other in EDGES[room] if other in name_of} - {name}
    return reduced(edges)


def test_every_room_is_in_one_box_of_the_picture_or_is_left_out_on_purpose() -> None:
    drawn = [room for rooms in boxes() for room in rooms]

    assert sorted([*drawn, *NOT_DRAWN]) == sorted(EDGES)


def test_the_picture_has_a_line_for_each_edge_that_does_not_follow_from_others() -> None:
    """The rooms inside the protocol are boxes in a box: only the edges among themselves are lines."""
    lines = re.findall(r'<line [^>]*data-from="([^"]+)" data-to="([^"]+)"', PICTURE)
    inner = [rooms for rooms in boxes() if rooms[0].startswith("ckpt_stream.protocol.")]

    assert len(lines) == PICTURE.count("<line") == len(set(lines))
    assert set(lines) == edges_between(set(boxes()) - set(inner)) | edges_between(inner)


def test_the_picture_is_what_its_script_makes() -> None:
    assert script("rooms_picture").picture(EDGES) == PICTURE, "run: .venv/bin/python scripts/rooms_picture.py"


def test_an_edge_that_follows_from_others_is_no_line() -> None:
    assert reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {("a", "b"), ("b", "c")}
