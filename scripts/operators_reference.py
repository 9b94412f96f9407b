"""Writes docs/operators.md out of the docstrings: `.venv/bin/python scripts/operators_reference.py`."""

from __future__ import annotations

import inspect
import re
import textwrap
from datetime import timedelta
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "operators.md"

#: What a DAG imports from `airflow_ckpt` and puts into a task, in the order in which one meets it.
OPERATORS = (
    "SparkStreamSubmitOperator",
    "CheckpointProgressSensor",
    "ExactlyOnceVerifyOperator",
    "SparkStreamResumeOperator",
    "SparkStreamSuperviseOperator",
    "SparkStreamStopOperator",
)
NOTIFIERS = ("StreamWebhookNotifier",)

INTRO = """\
# Operators

This page is generated from the docstrings by `scripts/operators_reference.py`. Change the docstrings, not this page.

All names are imported from `airflow_ckpt`. Each operator also takes what Airflow's `BaseOperator` takes (`task_id`,
`retries`, `trigger_rule`, ...). `retries` are for faults of Airflow itself: the [restart strategy](resume.md) of a stream
decides what happens after a failure of the stream.
"""

OUTRO = """\
## What a task leaves behind

- **XCom** `return_value`: the stream's status as JSON (of a verification: the verdict, also under the key `verdict`).
  A resume adds `resumed`: true or false.
- **Link** *Spark UI*, from the moment the driver has one.
- **Task log**: one line per look, with batch, rows per second, lag, and the age of the last commit.
- **Asset event**: each stream with a fixed name and sink has an asset (`stream_asset(stream)`), and the events carry
  batch, offsets, state and verdict. Another DAG can be scheduled on it.
- **Metrics** with the tag `stream`: gauges `airflow_ckpt.lag_records`, `.lag_seconds`, `.last_commit_age_seconds`,
  `.committed_batch`, `.broken`; counters `airflow_ckpt.failed`, `.resumed`, `.given_up`, `.verified`, `.violated`,
  `.unverified`, `.at_risk`.
"""


def page() -> str:
    """The whole page."""
    import airflow_ckpt
    from airflow_ckpt.operators.base import StreamOperator

    parts = [INTRO, "## All of them\n", *_body(StreamOperator)]
    for name in OPERATORS:
        parts += [f"## {name}\n", *_body(getattr(airflow_ckpt, name))]
    for name in NOTIFIERS:
        parts += [f"## {name}\n", *_body(getattr(airflow_ckpt, name))]
    return "\n".join([*parts, OUTRO])


def _body(kind: type[Any]) -> list[str]:
    """The prose of a class, and a table of its parameters."""
    prose, described = _split(inspect.getdoc(kind) or "")
    given = {
        name: parameter.default
        for name, parameter in inspect.signature(kind.__init__).parameters.items()
        if name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    if "__init__" not in vars(kind):
        given = {}
    if set(given) != set(described):
        raise SystemExit(f"{kind.__name__}: described {sorted(described)}, taken {sorted(given)}")
    lines = [prose, ""]
    if given:
        lines += ["| parameter | default | meaning |", "| --- | --- | --- |"]
        lines += [f"| `{name}` | {_default(name, value)} | {_cell(described[name])} |" for name, value in given.items()]
        lines.append("")
    return lines


def _split(text: str) -> tuple[str, dict[str, str]]:
    """A docstring's prose, each paragraph in one line, and its `:param name:` entries."""
    head, *entries = re.split(r"^:param (?=\w+:)", text, flags=re.MULTILINE)
    paragraphs = [" ".join(p.split()) for p in head.strip().split("\n\n")]
    found = [entry.partition(":") for entry in entries]
    return "\n\n".join(paragraphs), {name: " ".join(textwrap.dedent(rest).split()) for name, _, rest in found}


def _default(name: str, value: Any) -> str:
    if value is inspect.Parameter.empty:
        return "required"
    if name == "deferrable":
        # Else the page would depend on whose airflow.cfg is read while it is made.
        return "`[operators] default_deferrable`"
    if isinstance(value, timedelta):
        from airflow_ckpt.streams.durations import in_words

        return in_words(value.total_seconds())
    return "" if value in (None, (), "") else f"`{value!r}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
