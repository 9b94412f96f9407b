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
#: The most files of each walk.
WALKS = {"The walk of a batch": 12, "The walk of a failure": 16, "The walk of a start": 10}
#: Steps that another process takes, which therefore no earlier step imports: how the text of the step names that process.
ANOTHER_PROCESS = {
    "airflow_ckpt/triggers/progress.py": "in the triggerer",
    "airflow_ckpt/operators/supervise.py": "in a worker",
}
#: Files that one step of a walk imports and that import a later one, and why they are no steps.
NO_STEPS = {
    "The walk of a batch": {
        "spark/ckpt_stream/driver/lane_replay.py": "a replay that is only compared",
        "spark/ckpt_stream/driver/start_of_run.py": "the walk of a start",
        "spark/ckpt_stream/protocol/ledger/reconciliation.py": "the walk of a start",
    },
    "The walk of a failure": {
        "airflow_ckpt/runners/work_folders.py": "deletes old folders, writes a note",
        "airflow_ckpt/streams/stream.py": "the declaration",
        "airflow_ckpt/supervision/side_jobs.py": "jobs beside the stream",
        "airflow_ckpt/supervision/start_conditions.py": "reads what preflight judges",
        "airflow_ckpt/supervision/stop_or_kill.py": "a stop on request, and the end of a stalled driver",
    },
    "The walk of a start": {
        "spark/ckpt_stream/driver/sink.py": "the walk of a batch",
        "spark/ckpt_stream/driver/watch.py": "the walk of a batch",
    },
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


@pytest.mark.parametrize(("title", "most"), WALKS.items())
def test_a_walk_names_existing_files_and_not_too_many(title: str, most: int) -> None:
    files = steps(title)

    assert len(files) == len(re.findall(r"^\d+\. ", section(title), re.MULTILINE))
    assert 5 < len(files) <= most
    assert len(set(files)) == len(files)
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_every_walk_of_the_page_is_checked() -> None:
    assert re.findall(r"^## (The walk of .*)$", PAGE, re.MULTILINE) == list(WALKS)


def not_imported(files: list[str]) -> set[str]:
    """The steps that no earlier one imports, besides the first."""
    return {name for at, name in enumerate(files) if at and name not in set().union(*map(imported_files, files[:at]))}


@pytest.mark.parametrize("title", WALKS)
def test_each_step_of_a_walk_is_imported_by_an_earlier_one_or_taken_by_another_process(title: str) -> None:
    files = steps(title)

    assert not_imported(files) == ANOTHER_PROCESS.keys() & set(files)


def between(files: list[str]) -> set[str]:
    """Files that are no steps, but which one step imports and which import a later step."""
    every = {str(file.relative_to(ROOT)) for package in PACKAGES for file in package.rglob("*.py")} - set(files)
    first = {name: at for at, step in reversed(list(enumerate(files))) for name in imported_files(step)}
    return {name for name in every & first.keys() if imported_files(name) & set(files[first[name] + 1 :])}


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_leaves_out_no_file_between_two_steps_without_a_reason(title: str) -> None:
    assert between(steps(title)) == NO_STEPS[title].keys()


@pytest.mark.parametrize(("file", "words"), ANOTHER_PROCESS.items())
def test_a_step_of_another_process_names_that_process(file: str, words: str) -> None:
    (step,) = re.findall(rf"^\d+\. `{file}` (.*)$", PAGE, re.MULTILINE)

    assert words in step


def test_the_launcher_is_started_by_the_file_before_it() -> None:
    """It is a program and not a module, so that its file name is all that its caller knows."""
    files = steps("The walk of a failure")
    before, launcher = files[-2:]

    assert launcher.endswith("/launcher.py")
    assert '.with_name("launcher.py")' in (ROOT / before).read_text()


def test_a_file_on_the_path_that_a_walk_leaves_out_is_seen() -> None:
    files, (queries, sink) = (
        steps("The walk of a batch"),
        (f"spark/ckpt_stream/driver/{name}.py" for name in ("queries", "sink")),
    )

    assert queries in between([file for file in files if file != queries])
    assert not_imported([file for file in files if file != sink]) == {"spark/ckpt_stream/driver/exactly_once.py"}


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
