"""Shows the demo's result: a table of both sinks, and a chart of batches over time with the kills marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

COLUMNS = 60
BARS = " ▁▂▃▄▅▆▇█"
ROWS = (
    ("source records", "source_records"),
    ("sink records, committed", "sink_committed"),
    ("lost", "lost"),
    ("duplicated", "duplicated"),
    ("wrong counts", "wrong"),
    ("aborted copies hidden", "aborted_hidden"),
    ("driver killed, times", "kills"),
)


def result_as_text(value: Mapping[str, Any]) -> RenderableType:
    """Table, charts, report and verdict."""
    table = Table(title="requests per IP and window, killed twice")
    table.add_column("")
    for name in ("this sink", "Spark's own sink"):
        table.add_column(name, justify="right")
    for title, name in ROWS:
        table.add_row(title, f"{value['ours'][name]:,}", f"{value['control'][name]:,}")
    parts: list[RenderableType] = [table]
    for name, batches in value["batches"].items():
        parts.append(chart(name, batches["batches"], batches["kills"]))
    parts.append(Text(f"report: {value['report']}"))
    if value.get("url"):
        parts.append(Text(f"Airflow is still up: {value['url']} ({value['username']} / {value['password']})"))
    passed = value["result"] == "PASS"
    parts.append(Text(f"{value['result']}: {value['reason']}", style="bold green" if passed else "bold red"))
    return Group(*parts)


def chart(title: str, batches: Sequence[Sequence[float]], kills: Sequence[float]) -> Text:
    """Input rows per batch over time as bars; a kill is a red x."""
    times = [t for t, _ in batches] + list(kills)
    if not times:
        return Text(f"{title}: no batches")
    begin, span = min(times), max(max(times) - min(times), 1.0)

    def column(moment: float) -> int:
        return min(COLUMNS - 1, int((moment - begin) / span * (COLUMNS - 1)))

    heights = [0.0] * COLUMNS
    for moment, rows in batches:
        heights[column(moment)] = max(heights[column(moment)], rows)
    tallest = max(heights) or 1.0
    text = Text(f"{title:<17}")
    killed = {column(kill) for kill in kills}
    for place, height in enumerate(heights):
        if place in killed:
            text.append("x", style="bold red")
        else:
            level = 0 if not height else max(1, round(height / tallest * (len(BARS) - 1)))
            text.append(BARS[level], style="cyan")
    text.append(f"  {len(batches)} batches in {span:.0f} s, x: driver killed")
    return text
