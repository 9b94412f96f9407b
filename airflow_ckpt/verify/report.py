"""Shows a verdict: as a table in the terminal, and as one self-contained HTML page with plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime
from html import escape
from io import StringIO
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

COLOURS = {"clean": "#1a7f37", "violated": "#cf222e", "unknown": "#9a6700"}
STYLES = {"clean": "bold green", "violated": "bold red", "unknown": "bold yellow"}
WORDS = {
    "clean": "every record is in the sink exactly once",
    "violated": "records are lost, doubled or altered",
    "unknown": "not verified: see the findings",
}
ROWS = (
    ("batches", "range"),
    ("source offsets read", "source_records"),
    ("records in the ledger", "ledger_records"),
    ("records recomputed", "recomputed"),
    ("records in the sink (committed)", "sink_committed"),
    ("aborted copies hidden", "aborted_hidden"),
    ("lost", "lost"),
    ("duplicated", "duplicated"),
    ("torn batches", "torn"),
    ("alien", "alien"),
    ("out of order", "out_of_order"),
    ("altered batches", "altered"),
    ("dead letters", "dead_letters"),
    ("open transactions", "open_transactions"),
    ("seconds", "seconds"),
    ("records per second", "records_per_second"),
)

#: These rows are shown only if they have a number, because not every depth and not every stream has them.
OPTIONAL = ("recomputed", "dead_letters")

Document = Mapping[str, Any]
#: Query and number of the batches to which findings refer.
Faulty = Set[tuple[str | None, int]]


def _rows(verdict: Document) -> list[tuple[str, str]]:
    return [(label, _value(verdict, n)) for label, n in ROWS if n not in OPTIONAL or verdict.get(n) is not None]


def _value(verdict: Document, name: str) -> str:
    if name == "range":
        return _range(verdict)
    value = verdict.get(name)
    if value is None:
        return "unknown"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _range(verdict: Document) -> str:
    """The range of batches; with their queries if the ledger has several, because each query counts from 0."""
    first, last = verdict.get("first_batch"), verdict.get("last_batch")
    if first is None:
        return "none"
    batches = verdict.get("batches") or ()
    if len(verdict.get("queries") or ()) < 2 or not batches:
        return f"{first} to {last}"
    return f"{first} of {batches[0]['query']} to {last} of {batches[-1]['query']}"


def verdict_as_text(verdict: Document) -> RenderableType:
    """The verdict as a table."""
    state = verdict["verdict"]
    table = Table(title=f"stream {verdict['stream']}, depth {verdict['depth']}", show_header=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for row in _rows(verdict):
        table.add_row(*row)
    parts: list[RenderableType] = [table]
    for finding in verdict["findings"]:
        label = "violation" if finding["violation"] else "unknown"
        line = Text.assemble((f"{label}: {finding['kind']}: ", "bold"), finding["what"])
        if finding["helps"]:
            line.append(f" What helps: {finding['helps']}.", "dim")
        parts.append(line)
    parts += [Text.assemble((f"note: {n['kind']}: ", "bold"), n["what"]) for n in verdict.get("notes") or ()]
    parts.append(Text(f"{state.upper()}: {WORDS[state]}", STYLES[state]))
    return Group(*parts)


def as_plain_text(verdict: Document) -> str:
    """The verdict as a table without colours, for a log."""
    from rich.console import Console

    text = StringIO()
    Console(file=text, width=120, no_color=True).print(verdict_as_text(verdict))
    return text.getvalue()


def as_html(verdict: Document, batches: Sequence[Document] = ()) -> str:
    """The verdict as one HTML page; ``batches`` come from the run record, for the plots of lag and time per batch."""
    state = verdict["verdict"]
    rows = "".join(f"<tr><td>{escape(label)}</td><td>{escape(value)}</td></tr>" for label, value in _rows(verdict))
    findings = "".join(
        f"<li><b>{escape(f['kind'])}</b> {escape(f['what'])}"
        + (f"<br><i>What helps: {escape(f['helps'])}.</i>" if f["helps"] else "")
        + "</li>"
        for f in verdict["findings"]
    )
    notes = "".join(f"<li><b>{escape(n['kind'])}</b> {escape(n['what'])}</li>" for n in verdict.get("notes") or ())
    faulty = {(f["query"], f["batch"]) for f in verdict["findings"] if f["batch"] is not None}
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(str(verdict["stream"]))}: {state}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1f2328 }}
h1 span {{ background: {COLOURS[state]}; color: #fff; border-radius: 6px; padding: .1em .5em }}
td {{ padding: .15em 1.5em .15em 0; border-bottom: 1px solid #d8dee4 }} td + td {{ text-align: right }}
svg {{ width: 100%; height: auto; background: #f6f8fa; border-radius: 6px }} figcaption {{ color: #59636e }}
</style></head><body>
<h1>{escape(str(verdict["stream"]))} <span>{state}</span></h1>
<p>{escape(WORDS[state])} &middot; depth {escape(verdict["depth"])} &middot; {escape(str(verdict["time"]))}</p>
<table>{rows}</table>
<h2>Findings</h2>{f"<ul>{findings}</ul>" if findings else "<p>None.</p>"}
{f"<h2>Notes</h2><ul>{notes}</ul>" if notes else ""}
{_records(verdict["batches"], faulty)}
{_throughput(verdict["batches"])}
{_line(batches, "lag", _lag, "{:,} records", "Lag: records that waited when a batch was planned")}
{_line(batches, "time per batch", _duration, "{:,} ms", "Time per batch")}
</body></html>
"""


def _records(batches: Sequence[Document], faulty: Faulty) -> str:
    if not batches:
        return ""
    words = "Records per batch: grey in the ledger, blue in the sink, red if a finding refers to the batch."
    return f"<figure>{_bars(batches, faulty)}<figcaption>{words}</figcaption></figure>"


def _bars(batches: Sequence[Document], faulty: Faulty) -> str:
    shown = batches[-400:]
    top = max([1, *(b["expected"] for b in shown), *(b["found"] or 0 for b in shown)])
    width = 900 / max(1, len(shown))
    parts = []
    for i, b in enumerate(shown):
        x = 30 + i * width
        for value, colour, inset in ((b["expected"], "#afb8c1", 0.0), (b["found"], "#0969da", 0.2)):
            if value:
                height = 160 * value / top
                fill = "#cf222e" if inset and _is(b, faulty) else colour
                wide = max(0.5, width * (0.9 - 2 * inset))
                parts.append(
                    f'<rect x="{x + width * inset:.1f}" y="{180 - height:.1f}" width="{wide:.1f}" height="{height:.1f}" '
                    f'fill="{fill}"><title>batch {b["batch"]}: {value}</title></rect>'
                )
        if _is(b, faulty):
            parts.append(f'<text x="{x + width / 2:.1f}" y="195" font-size="10" fill="#cf222e">{b["batch"]}</text>')
    label = f'<text x="30" y="15" font-size="11" fill="#59636e">{top:,} records</text>'
    return f'<svg viewBox="0 0 960 200" role="img" aria-label="records per batch">{label}{"".join(parts)}</svg>'


def _is(batch: Document, faulty: Faulty) -> bool:
    return (batch["query"], batch["batch"]) in faulty


def _throughput(batches: Sequence[Document]) -> str:
    """A plot of the records read and written by each batch, over the time at which the batches were committed."""
    known = [(t, b) for b in batches if b.get("source") is not None and (t := _seconds(b["time"])) is not None]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return ""
    first, last = known[0][0], known[-1][0]
    top = max([1, *(max(b["source"], b["expected"]) for _, b in known)])
    lines = ""
    for name, colour in (("source", "#8250df"), ("expected", "#0969da")):
        points = " ".join(
            f"{30 + 900 * (t - first) / (last - first):.1f},{180 - 160 * b[name] / top:.1f}" for t, b in known
        )
        lines += f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    rate = sum(b["source"] for _, b in known[1:]) / (last - first)
    ends = f"{escape(str(known[0][1]['time']))} to {escape(str(known[-1][1]['time']))}"
    return (
        f'<figure><svg viewBox="0 0 960 200" role="img" aria-label="throughput"><text x="30" y="15" font-size="11" '
        f'fill="#59636e">{top:,} per batch</text>{lines}</svg><figcaption>Over time, {ends}: violet the source offsets that '
        f"each batch read, blue the records that it wrote; {rate:,.0f} source offsets per second.</figcaption></figure>"
    )


def _seconds(time: str) -> float | None:
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return None


def _duration(batch: Document) -> int | None:
    found: int | None = (batch.get("durations_ms") or {}).get("triggerExecution")
    return found


def _lag(batch: Document) -> int | None:
    found: int | None = batch.get("lag")
    return found


def _line(
    batches: Sequence[Document], label: str, value: Callable[[Document], int | None], unit: str, caption: str
) -> str:
    """A plot with one number per batch."""
    known = [(b["batch"], found) for b in batches if (found := value(b)) is not None]
    if len(known) < 2:
        return ""
    top = max(1, *(n for _, n in known))
    step = 900 / (len(known) - 1)
    points = " ".join(f"{30 + i * step:.1f},{180 - 160 * n / top:.1f}" for i, (_, n) in enumerate(known))
    return (
        f'<figure><svg viewBox="0 0 960 200" role="img" aria-label="{label}"><text x="30" y="15" font-size="11" '
        f'fill="#59636e">{unit.format(top)}</text><polyline points="{points}" fill="none" stroke="#0969da" '
        f'stroke-width="1.5"/></svg><figcaption>{caption}, batches {known[0][0]} to {known[-1][0]}.</figcaption></figure>'
    )
