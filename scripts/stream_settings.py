"""Writes the documentation's tables of settings out of the settings: `.venv/bin/python scripts/stream_settings.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow_ckpt.streams.durations import in_words
from airflow_ckpt.streams.restart_strategies import RestartStrategy
from airflow_ckpt.streams.stream import Stream
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.protocol.settings.setting import Group, default_of, settings_of

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- made by scripts/stream_settings.py -->\n", "<!-- end of what is made -->\n"
HEAD = ("| setting | default | meaning |", "| --- | --- | --- |")
#: What a reader must know before a table.
INTRODUCTIONS = {Group.START: "Only for a checkpoint without a batch. A checkpoint always wins.\n"}


def made_pages() -> dict[Path, str]:
    """Each page with tables of settings, with its tables made again."""
    tables = {
        "declare-a-stream.md": tables_of_a_stream(),
        "applications.md": table_of_the_document(),
        "api.md": call_of_a_stream(),
    }
    return {DOCS / name: _page((DOCS / name).read_text(), made) for name, made in tables.items()}


def _page(text: str, made: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{made}{END}{after}"


def tables_of_a_stream() -> str:
    """One table for each group of settings, in the order of the groups."""
    parts = []
    for group in Group:
        if rows := list(_rows(group)):
            introduction = [INTRODUCTIONS[group]] if group in INTRODUCTIONS else []
            parts.append("\n".join([f"### {group.value}\n", *introduction, *HEAD, *rows]) + "\n\n")
    return "".join(parts)


def call_of_a_stream() -> str:
    """How a stream is made, with every setting and its default: mkdocstrings would show how each is declared."""
    lines = []
    for group in Group:
        if settings := [f for f in _required_first(Stream) if settings_of(Stream)[f.name].group is group]:
            lines += [f"    # {group.value}", *(f"    {f.name}{_given(f)}," for f in settings)]
    return "\n".join(["```text", "Stream(", *lines, ")", "```\n\n"])


def _given(f: Field[Any]) -> str:
    value = default_of(f)
    if value is MISSING:
        return ""
    if isinstance(value, timedelta):
        value = in_words(value.total_seconds())
    if isinstance(value, RestartStrategy):
        return f"={type(value).__name__}()"
    return f'="{value}"' if isinstance(value, str) else f"={value!r}"


def table_of_the_document() -> str:
    """The settings of the document that an application takes, as JSON."""
    known = settings_of(StreamConfig)
    rows = (_row(f.name, _json_default(default_of(f)), known[f.name].about) for f in _required_first(StreamConfig))
    return "\n".join([*HEAD, *rows]) + "\n\n"


def _rows(group: Group) -> Iterator[str]:
    known = settings_of(Stream)
    for f in _required_first(Stream):
        if known[f.name].group is group:
            yield _row(f.name, _default(f), known[f.name].about)


def _required_first(declaration: type[Any]) -> list[Field[Any]]:
    return sorted(fields(declaration), key=lambda f: default_of(f) is not MISSING)


def _row(name: str, default: str, about: str) -> str:
    return f"| `{name}` | {default} | {about} |".replace("|  |", "| |")


def _json_default(value: Any) -> str:
    if value is MISSING:
        return "required"
    if isinstance(value, timedelta):
        return f"`{value.total_seconds():g}`"
    return "" if value is None or value in ("", (), {}) else f"`{json.dumps(value).strip(chr(34))}`"


def _default(f: Field[Any]) -> str:
    value = default_of(f)
    if value is MISSING:
        return "required"
    if isinstance(value, timedelta):
        return in_words(value.total_seconds())
    if isinstance(value, RestartStrategy):
        return f"`{type(value).__name__}()`"
    return "" if value is None or value in ("", (), {}) else f"`{value}`"


if __name__ == "__main__":
    for path, text in made_pages().items():
        path.write_text(text)
