"""The rooms of both packages, the edges between them, and what the source really imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
    "ckpt_stream.kafka": ("ckpt_stream.errors", "ckpt_stream.protocol"),
    "ckpt_stream.spark": ("ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.kafka"),
    "ckpt_stream.driver": ("ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.kafka", "ckpt_stream.spark"),
    "ckpt_stream.verify": ("ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.kafka", "ckpt_stream.spark"),
    "ckpt_stream.application": (
        "ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.spark", "ckpt_stream.driver", "ckpt_stream.verify",
    ),
    "ckpt_stream": ("ckpt_stream.spark", "ckpt_stream.application"),
    "airflow_ckpt.exceptions": (),
    "airflow_ckpt.streams": ("ckpt_stream.errors", "ckpt_stream.protocol", "airflow_ckpt.exceptions"),
    "airflow_ckpt.checkpoint": ("ckpt_stream.errors", "ckpt_stream.protocol", "airflow_ckpt.exceptions"),
    "airflow_ckpt.kafka": ("ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.kafka"),
    "airflow_ckpt.runners": (
        "ckpt_stream.protocol", "airflow_ckpt.exceptions", "airflow_ckpt.streams", "airflow_ckpt.checkpoint",
    ),
    "airflow_ckpt.supervision": (
        "ckpt_stream.errors", "ckpt_stream.protocol", "ckpt_stream.kafka", "airflow_ckpt.exceptions", "airflow_ckpt.streams",
        "airflow_ckpt.checkpoint", "airflow_ckpt.kafka", "airflow_ckpt.runners",
    ),
    "airflow_ckpt.verify": (
        "ckpt_stream.protocol", "ckpt_stream.kafka", "airflow_ckpt.exceptions", "airflow_ckpt.checkpoint",
        "airflow_ckpt.kafka",
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
    "airflow_ckpt.local": ("ckpt_stream.protocol", "airflow_ckpt", "airflow_ckpt.exceptions", "airflow_ckpt.runners"),
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

#: A folder below the repository, and the third-party packages that nothing in it may import.
FORBIDDEN = {
    "airflow_ckpt/checkpoint": ("airflow", "confluent_kafka", "pyspark"),
    "airflow_ckpt/cli": ("airflow",),
    "airflow_ckpt/demo": ("airflow",),
    "airflow_ckpt/kafka": ("airflow", "pyspark"),
    "airflow_ckpt/local": ("airflow",),
    "airflow_ckpt/runners": ("airflow", "confluent_kafka", "pyspark"),
    "airflow_ckpt/streams": ("airflow", "confluent_kafka", "pyspark"),
    "airflow_ckpt/supervision": ("airflow", "pyspark"),
    "airflow_ckpt/verify": ("airflow", "pyspark"),
    "spark": ("airflow", "airflow_ckpt"),
    "spark/ckpt_stream/protocol": ("confluent_kafka", "py4j", "pyspark"),
    "spark/ckpt_stream/kafka": ("pyspark", "py4j"),
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
    outer = next((outer for outer in EDGES if other.startswith(f"{outer}.") and outer.count(".") == 1), other)
    return other if room == outer or room.startswith(f"{outer}.") else outer


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


def module_of(file: Path, package: Path) -> str:
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(file: Path, module: str = "") -> Iterator[tuple[int, str]]:
    """Each module that a file imports, with its line; `importlib.import_module("x")` counts too.

    A relative import is resolved if the importing module is given.
    """
    for node in ast.walk(ast.parse(file.read_text(), filename=str(file))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.level == 0 or module):
            # `from package import name`: the name may be a module of it.
            source = _absolute(node, module, is_package=file.name == "__init__.py")
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and (name := _imported_by_call(node)):
            yield node.lineno, name


def _absolute(node: ast.ImportFrom, module: str, *, is_package: bool) -> str:
    if node.level == 0:
        return node.module or ""
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, node.module] if node.module else parts)


def _imported_by_call(call: ast.Call) -> str | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "name")]
    if name in ("import_module", "__import__") and given and isinstance(given[0], ast.Constant):
        return str(given[0].value)
    return None
