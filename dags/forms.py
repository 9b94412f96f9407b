"""What the forms of these examples share: their sections, and fields that are settings of a stream."""

from __future__ import annotations

import re
from typing import Any

from airflow.sdk import Param

from airflow_ckpt import Stream
from ckpt_stream.protocol.settings.setting import settings_of

#: The sections of a form besides the groups of settings.
FIRE_DRILL, CHECKS = "Fire drill", "Checks"


def setting_field(name: str, default: Any, note: str = "", **schema: Any) -> Param:
    """A form's field for a setting of a stream: in the section of its group, with its description and a note."""
    known = settings_of(Stream)[name]
    return Param(default, section=known.group.value, description=f"{plain_text(known.about)} {note}".strip(), **schema)


def plain_text(about: str) -> str:
    """A setting's description as a sentence without Markdown, which a form shows as it is written."""
    without_pointers = re.sub(r"; see \[[^\]]*\]\([^)]*\)", "", about)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", without_pointers).replace("`", "")
    return f"{text[0].upper()}{text[1:]}."
