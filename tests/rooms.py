"""The rooms of both packages, the edges between them, and what the source really imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.imports import dynamic_imports, imports, module_of

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "airflow_ckpt", ROOT / "spark" / "ckpt_stream")

#: Every room, with the rooms that it imports: not more, and not fewer. An edge to a room includes the rooms inside it.
EDGES: dict[str, tuple[str, ...]] = {
    "ckpt_stream.errors": (),
    "ckpt_stream.protocol": ("ckpt_stream.errors",),
    "ckpt_stream.protocol.checkpoint": ("ckpt_stream.errors", "ckpt_stream.protocol"),
    "ckpt_stream.protocol.run_files": ("ckpt_stream.errors", "ckpt_stream.protocol"),
    "ckpt_stream.protocol.ledger": (
        "ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.protocol.checkpoint", "ckpt_stream.protocol.run_files",
    ),
    "ckpt_stream.protocol.settings": ("ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.protocol.ledger"),
    "ckpt_stream.protocol.verification": (
        "ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.protocol.ledger", "ckpt_stream.protocol.settings",
    ),
    "ckpt_stream.machine": ("ckpt_stream.errors", "ckpt_stream.protocol"),
    "ckpt_stream.kafka": ("ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.machine"),
    "ckpt_stream.spark": ("ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.machine", "ckpt_stream.kafka"),
    "ckpt_stream.driver": (
        "ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.machine", "ckpt_stream.kafka", "ckpt_stream.spark",
    ),
    "ckpt_stream.verify": (
        "ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.machine", "ckpt_stream.kafka", "ckpt_stream.spark",
    ),
    "ckpt_stream.application": (
        "ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.machine", "ckpt_stream.spark", "ckpt_stream.driver",
        "ckpt_stream.verify",
    ),
    "ckpt_stream": ("ckpt_stream.spark", "ckpt_stream.application"),
    "airflow_ckpt.exceptions": (),
    "airflow_ckpt.streams": ("ckpt_stream.errors", "ckpt_stream.protocol", "airflow_ckpt.exceptions"),
    "airflow_ckpt.checkpoint": (
        "ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.machine", "airflow_ckpt.exceptions",
    ),
    "airflow_ckpt.kafka": ("ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.kafka"),
    "airflow_ckpt.runners": (
        "ckpt_stream.protocol", "ckpt_stream.machine", "airflow_ckpt.exceptions", "airflow_ckpt.streams",
        "airflow_ckpt.checkpoint",
    ),
    "airflow_ckpt.supervision": (
        "ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.machine", "ckpt_stream.kafka", "airflow_ckpt.exceptions",
        "airflow_ckpt.streams", "airflow_ckpt.checkpoint", "airflow_ckpt.kafka", "airflow_ckpt.runners",
    ),
    "airflow_ckpt.verify.verdict": (),
    "airflow_ckpt.verify.scan": ("ckpt_stream.protocol", "airflow_ckpt.exceptions"),
    "airflow_ckpt.verify.checks": ("ckpt_stream.protocol", "airflow_ckpt.verify.verdict", "airflow_ckpt.verify.scan"),
    "airflow_ckpt.verify": (
        "ckpt_stream.protocol", "ckpt_stream.kafka", "airflow_ckpt.exceptions", "airflow_ckpt.checkpoint",
        "airflow_ckpt.kafka", "airflow_ckpt.verify.verdict", "airflow_ckpt.verify.scan", "airflow_ckpt.verify.checks",
    ),
    # What Airflow calls: arguments in, a call into the core, the result out.
    "airflow_ckpt.assets": ("airflow_ckpt.streams",),
    "airflow_ckpt.links": (),
    "airflow_ckpt.metrics": ("airflow_ckpt.streams",),
    "airflow_ckpt.hooks": (
        # The package itself: it is zipped and sent to Spark.
        "ckpt_stream", "ckpt_stream.protocol", "ckpt_stream.kafka", "airflow_ckpt.exceptions", "airflow_ckpt.streams",
        "airflow_ckpt.checkpoint", "airflow_ckpt.runners", "airflow_ckpt.supervision",
    ),
    "airflow_ckpt.notifications": ("airflow_ckpt.exceptions", "airflow_ckpt.streams", "airflow_ckpt.metrics"),
    "airflow_ckpt.triggers": (
        "airflow_ckpt.exceptions", "airflow_ckpt.streams", "airflow_ckpt.supervision", "airflow_ckpt.hooks",
        "airflow_ckpt.metrics",
    ),
    "airflow_ckpt.operators": (
        # The package itself: the job of a verification is a file of it.
        "ckpt_stream", "ckpt_stream.errors", "ckpt_stream.protocol", "airflow_ckpt.exceptions", "airflow_ckpt.streams",
        "airflow_ckpt.supervision", "airflow_ckpt.verify", "airflow_ckpt.assets", "airflow_ckpt.hooks", "airflow_ckpt.links",
        "airflow_ckpt.metrics", "airflow_ckpt.notifications", "airflow_ckpt.triggers",
    ),
    "airflow_ckpt.sensors": (
        "airflow_ckpt.exceptions", "airflow_ckpt.streams", "airflow_ckpt.supervision", "airflow_ckpt.operators",
    ),
    "airflow_ckpt.get_provider_info": (),
    "airflow_ckpt": (
        "airflow_ckpt.assets", "airflow_ckpt.notifications", "airflow_ckpt.operators", "airflow_ckpt.sensors",
        "airflow_ckpt.streams",
    ),
    # For a terminal, and for the example DAGs.
    "airflow_ckpt.examples": ("ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.kafka", "airflow_ckpt.exceptions"),
    "airflow_ckpt.local": ("airflow_ckpt.runners",),
    "airflow_ckpt.local.processes": ("ckpt_stream.protocol", "ckpt_stream.machine", "airflow_ckpt.exceptions"),
    "airflow_ckpt.local.jars": ("airflow_ckpt.exceptions", "airflow_ckpt.local", "airflow_ckpt.local.processes"),
    "airflow_ckpt.local.kafka": (
        "airflow_ckpt.exceptions", "airflow_ckpt.local", "airflow_ckpt.local.processes", "airflow_ckpt.local.jars",
    ),
    "airflow_ckpt.local.airflow": (
        "airflow_ckpt.exceptions", "airflow_ckpt.local", "airflow_ckpt.local.processes", "airflow_ckpt.local.jars",
    ),
    "airflow_ckpt.local.stack": (
        "airflow_ckpt", "airflow_ckpt.exceptions", "airflow_ckpt.local", "airflow_ckpt.local.processes",
        "airflow_ckpt.local.jars", "airflow_ckpt.local.kafka", "airflow_ckpt.local.airflow",
    ),
    "airflow_ckpt.demo": (
        "ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.kafka", "airflow_ckpt.exceptions",
        "airflow_ckpt.checkpoint", "airflow_ckpt.examples", "airflow_ckpt.local",
    ),
    "airflow_ckpt.cli": (
        "ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.kafka", "airflow_ckpt", "airflow_ckpt.exceptions",
        "airflow_ckpt.streams", "airflow_ckpt.checkpoint", "airflow_ckpt.runners", "airflow_ckpt.supervision",
        "airflow_ckpt.verify", "airflow_ckpt.local", "airflow_ckpt.demo",
    ),
}  # fmt: skip

#: Packages of this repository that are not installed with the provider.
NOT_SHIPPED = ("bench", "scripts", "tests")

#: A folder below the repository, and the packages that nothing in it may import.
FORBIDDEN = {
    "airflow_ckpt": NOT_SHIPPED,
    "airflow_ckpt/checkpoint": ("airflow", "confluent_kafka", "pyspark"),
    "airflow_ckpt/cli": ("airflow",),
    "airflow_ckpt/demo": ("airflow",),
    "airflow_ckpt/kafka": ("airflow", "pyspark"),
    "airflow_ckpt/local": ("airflow",),
    "airflow_ckpt/runners": ("airflow", "confluent_kafka", "pyspark"),
    "airflow_ckpt/streams": ("airflow", "confluent_kafka", "pyspark"),
    "airflow_ckpt/supervision": ("airflow", "pyspark"),
    "airflow_ckpt/verify": ("airflow", "pyspark"),
    "dags": NOT_SHIPPED,
    "spark": ("airflow", "airflow_ckpt", *NOT_SHIPPED),
    "spark/ckpt_stream/machine": ("confluent_kafka", "py4j", "pyspark"),
    "spark/ckpt_stream/protocol": ("confluent_kafka", "py4j", "pyspark"),
    "spark/ckpt_stream/kafka": ("pyspark", "py4j"),
}


#: All that a room may import besides rooms: nothing with which it could reach the machine it runs on. Without `time`, it
#: cannot wait either.
MAY_IMPORT = {
    "airflow_ckpt/streams": ("collections", "dataclasses", "datetime", "hashlib", "json", "re", "typing"),
    "spark/ckpt_stream/protocol": (
        "bisect", "collections", "contextlib", "dataclasses", "datetime", "enum", "functools", "graphlib", "hashlib",
        "itertools", "json", "logging", "math", "random", "re", "time", "typing",
        "numpy", "xxhash",
    ),
}  # fmt: skip

#: Files that import or run what their source does not name, by what they use for it.
DYNAMIC = {
    # The public names, on first use; a test compares them with the imports for type checkers.
    "airflow_ckpt/__init__.py": {"import_module"},
    "spark/ckpt_stream/__init__.py": {"import_module"},
    # A user's DAG file, given by its path.
    "airflow_ckpt/cli/streams.py": {"spec_from_file_location", "module_from_spec", "exec_module"},
    # This process becomes Airflow's command line.
    "airflow_ckpt/local/airflow/boot.py": {"runpy", "run_module"},
    # Recognises Python's own importers, and imports nothing with them.
    "spark/ckpt_stream/driver/archive_cache.py": {"zipimporter"},
}


@dataclass(frozen=True)
class Import:
    """One import of a module by another one."""

    module: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.name}"


def room_of(module: str) -> str | None:
    """The room that a module is in: the longest one that its name begins with."""
    if module.split(".")[0] not in {package.name for package in PACKAGES}:
        return None
    return max((room for room in EDGES if module == room or module.startswith(f"{room}.")), key=len, default=None)


def undeclared_rooms(package: Path) -> list[str]:
    """Every folder with Python files, with or without an `__init__.py`, and every module beside the rooms, that is no room."""
    files = [file for file in package.rglob("*.py") if file.name != "__init__.py" or file.parent != package]
    rooms = {module_of(file.parent / "__init__.py", package) for file in files if file.parent != package}
    return sorted((rooms | {module_of(file, package) for file in files if file.parent == package}) - EDGES.keys())


def used_edges(package: Path) -> Iterator[tuple[str, str, Import]]:
    """Each import of a package that leaves its room: the room, the room that is imported, and where."""
    for file in sorted(package.rglob("*.py")):
        module = module_of(file, package)
        room = room_of(module)
        assert room is not None
        for line, name in imports(file, module):
            other = room_of(name)
            if other is not None and other != room:
                yield room, _as_declared(room, other), Import(module, line, name)


def _as_declared(room: str, other: str) -> str:
    """From outside, the rooms inside a room are one."""
    outer = outer_room(other)
    return other if outer_room(room) == outer else outer


def outer_room(room: str) -> str:
    """The room that is the folder or module directly below the package; the package itself is one too."""
    return ".".join(room.split(".")[:2])


def edges_of_all_rooms() -> Mapping[str, set[str]]:
    """Every room with each room that it may import, an edge from outside counting for the rooms inside that room too."""
    return {
        room: {
            inner
            for other in others
            for inner in EDGES
            if inner == other or (outer_room(room) != other and inner.startswith(f"{other}.") and "." in other)
        }
        for room, others in EDGES.items()
    }


def wrong_imports(package: Path) -> list[str]:
    """Every import of a room that the importing module's room may not import."""
    return [str(found) for room, other, found in used_edges(package) if other not in EDGES[room]]


def forbidden_imports(folder: Path, forbidden: tuple[str, ...]) -> list[str]:
    """Every import of a forbidden package below a folder, wherever in the file it stands."""
    return [
        f"{file.relative_to(folder)}:{line} imports {name}"
        for file in sorted(folder.rglob("*.py"))
        for line, name in imports(file)
        if name.split(".")[0] in forbidden
    ]


def imports_of_more_than(folder: Path, allowed: tuple[str, ...]) -> list[str]:
    """Every import below a folder of what is neither allowed nor one of our packages, and every file that is opened."""
    known = {"__future__", *allowed, *(package.name for package in PACKAGES)}
    files = sorted(folder.rglob("*.py"))
    opened = [
        f"{file.relative_to(folder)}:{node.lineno} calls {node.func.id}"
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("open", "input", "print")
    ]
    return opened + [
        f"{file.relative_to(folder)}:{line} imports {name}"
        for file in files
        for line, name in imports(file)
        if name.split(".")[0] not in known
    ]


def dynamic_imports_of(folder: Path) -> dict[str, set[str]]:
    """By file below a folder, the last part of the name of each thing that it uses to import what its source does not name."""
    found = {
        str(file.relative_to(folder.parent)): {name.rpartition(".")[2] for _, name in dynamic_imports(file)}
        for file in sorted(folder.rglob("*.py"))
    }
    return {file: names for file, names in found.items() if names}
