"""Makes docs/rooms.svg from the edges in tests/rooms.py: `.venv/bin/python scripts/rooms_picture.py`.

A line is drawn for each edge between two boxes that does not follow from other edges.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "rooms.svg"
LINE_HEIGHT = 16
#: A line ends so far from the corners of a box.
CORNER = 20


class Box(NamedTuple):
    """One or more rooms, drawn as one. The rooms of a box in another box are inside that box's room."""

    title: str
    kind: str
    x: int
    y: int
    width: int
    height: int
    rooms: tuple[str, ...]
    text: tuple[str, ...]


def _rooms(package: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{package}.{name}" for name in names)


PROTOCOL = "ckpt_stream.protocol"
BOXES = (
    Box("cli, demo, local", "top", 20, 40, 180, 64, (*_rooms("airflow_ckpt", "cli", "demo", "local", "examples"),
         *_rooms("airflow_ckpt.local", "stack", "airflow", "kafka", "jars", "processes")),
        ("commands, the demo,", "a stack on one machine")),
    Box("operators, sensors, triggers, hooks, ...", "thin", 220, 40, 360, 64,
        _rooms("airflow_ckpt", "operators", "sensors", "triggers", "hooks", "notifications", "assets", "links", "metrics"),
        ("what Airflow calls: arguments in,", "one call into the core, the result out")),
    Box("supervision", "act", 20, 152, 270, 72, _rooms("airflow_ckpt", "supervision"),
        ("looks at a stream and acts:", "observation, submit, resume, stop")),
    Box("verify", "act", 310, 152, 270, 72,
        (*_rooms("airflow_ckpt", "verify"), *_rooms("airflow_ckpt.verify", "checks", "scan", "verdict")),
        ("plan, scan in one process,", "checks, verdict and its report")),
    Box("runners", "act", 20, 274, 170, 72, _rooms("airflow_ckpt", "runners"),
        ("start and end a driver:", "local, YARN, Kubernetes")),
    Box("checkpoint", "act", 228, 274, 172, 72, _rooms("airflow_ckpt", "checkpoint"),
        ("reads the files beside", "it, through fsspec")),
    Box("kafka", "act", 424, 274, 156, 72, _rooms("airflow_ckpt", "kafka"),
        ("the lag, with one client", "for many streams")),
    Box("streams", "pure", 20, 394, 270, 72, _rooms("airflow_ckpt", "streams"),
        ("pure: declaration, restart strategies,", "status, goal, what prevents a start")),
    Box("application", "thin", 640, 40, 300, 64, _rooms("ckpt_stream", "application"),
        ("run(transform):", "what an application calls")),
    Box("driver", "run", 640, 152, 140, 88, _rooms("ckpt_stream", "driver"),
        ("one run: its start,", "sink and lanes,", "watch, end")),
    Box("verify", "run", 800, 152, 140, 88, _rooms("ckpt_stream", "verify"),
        ("scan of a sink and", "recomputation,", "as Spark jobs")),
    Box("spark", "run", 640, 280, 300, 66, _rooms("ckpt_stream", "spark"),
        ("session, files, source, output,", "rules for single records")),
    Box("kafka", "act", 640, 394, 300, 72, _rooms("ckpt_stream", "kafka"),
        ("client settings, topics, transactions,", "the ledger topic")),
    Box("machine", "act", 330, 514, 420, 72, _rooms("ckpt_stream", "machine"),
        ("which driver lives, the environment, local files,", "the kill at a crash point")),
    Box("protocol", "pure", 20, 634, 920, 168, (PROTOCOL,),
        ("formats and rules that Spark and Airflow agree on, in these rooms",)),
    Box("verification", "inner", 50, 712, 160, 56, _rooms(PROTOCOL, "verification"), ("consistent cut, result",)),
    Box("settings", "inner", 250, 712, 160, 56, _rooms(PROTOCOL, "settings"), ("of a stream, of a driver",)),
    Box("ledger", "inner", 450, 712, 160, 56, _rooms(PROTOCOL, "ledger"), ("record, decision, start",)),
    Box("checkpoint", "inner", 670, 682, 240, 50, _rooms(PROTOCOL, "checkpoint"), ("Spark's files",)),
    Box("run_files", "inner", 670, 742, 240, 50, _rooms(PROTOCOL, "run_files"), ("run record, restarts, stop, notes",)),
)  # fmt: skip
STYLE = """text { font-family: system-ui, sans-serif; text-anchor: middle; fill: #1f2328 }
.room { font-size: 15px; font-weight: 600 } .what { font-size: 12px; fill: #424a53 }
.side { font-size: 13px; font-weight: 600; fill: #59636e }
.thin { fill: #ddf4ff; stroke: #54aeff } .act { fill: #fff8c5; stroke: #d4a72c } .pure { fill: #dafbe1; stroke: #4ac26b }
.run { fill: #ffeff7; stroke: #ff80c8 } .top { fill: #f6f8fa; stroke: #afb8c1 } .inner { fill: #ffffff; stroke: #4ac26b }
.edge { stroke: #59636e; stroke-width: 1.4 } .head { fill: #59636e }"""


def drawn_edges(edges: Mapping[str, Iterable[str]]) -> set[tuple[Box, Box]]:
    """The edges between boxes that do not follow from others; between the rooms inside a room, only among themselves."""
    box_of = {room: box for box in BOXES for room in box.rooms}
    graph: dict[Box, set[Box]] = {box: set() for box in BOXES}
    for room, others in edges.items():
        for box, other in ((box_of.get(room), box_of.get(other)) for other in others):
            if box and other and box != other and (box.kind == "inner") == (other.kind == "inner"):
                graph[box].add(other)
    return {
        (box, other)
        for box, others in graph.items()
        for other in others
        if not any(other in _reached(graph, between) for between in others - {other})
    }


def _reached(graph: Mapping[Box, set[Box]], box: Box) -> set[Box]:
    return graph[box].union(*(_reached(graph, other) for other in graph[box]))


def picture(edges: Mapping[str, Iterable[str]]) -> str:
    return "\n".join(
        (
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 822" role="img" aria-labelledby="title desc">',
            '<title id="title">The rooms of airflow-ckpt</title>',
            '<desc id="desc">Arrows point from a room to the rooms it imports. On the left what runs in Airflow, on the right '
            "what runs in Spark, below what both share.</desc>",
            f"<style>\n{STYLE}\n</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path d="M0 0 8 4 0 8z" class="head"/></marker></defs>',
            '<rect width="960" height="822" fill="#ffffff" rx="8"/>',
            '<text x="300" y="24" class="side">airflow_ckpt: runs in Airflow, and in a terminal</text>',
            '<text x="790" y="24" class="side">ckpt_stream: runs in Spark</text>',
            *(line for box in BOXES for line in _drawn(box)),
            *_lines(drawn_edges(edges)),
            "</svg>\n",
        )
    )


def _drawn(box: Box) -> Iterator[str]:
    rooms = " ".join(box.rooms)
    size = f'x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}"'
    yield f'<rect {size} rx="8" class="{box.kind}" data-rooms="{rooms}"/>'
    center = box.x + box.width // 2
    yield f'<text x="{center}" y="{box.y + 22}" class="room">{box.title}</text>'
    for number, text in enumerate(box.text, 1):
        yield f'<text x="{center}" y="{box.y + 26 + LINE_HEIGHT * number}" class="what">{text}</text>'


def _lines(edges: set[tuple[Box, Box]]) -> Iterator[str]:
    for box in BOXES:
        others = sorted((other for start, other in edges if start == box), key=lambda o: (o.x, o.y))
        below = [other for other in others if other.y >= box.y + box.height]
        for other in others:
            if other in below:
                x = box.x + box.width * (below.index(other) + 1) // (len(below) + 1)
                end = min(max(x, other.x + CORNER), other.x + other.width - CORNER)
                points = (x, box.y + box.height, end, other.y)
            else:
                middle = box.y + box.height // 2
                end = min(max(middle, other.y + CORNER), other.y + other.height - CORNER)
                points = (box.x + box.width, middle, other.x, end)
            yield (
                '<line x1="{}" y1="{}" x2="{}" y2="{}" class="edge" marker-end="url(#head)" '
                'data-from="{}" data-to="{}"/>'.format(*points, box.rooms[0], other.rooms[0])
            )


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from tests.rooms import EDGES

    PICTURE.write_text(picture(EDGES))
