"""What a setting of a stream knows about itself: its kind, its limits, and the sentence that documents it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import timedelta
from enum import Enum
from typing import Any

from ckpt_stream.errors import ConfigError

_KEY = "setting"


class Group(Enum):
    """The part of a stream that a setting belongs to; the value is its heading in the documentation."""

    STREAM = "The stream"
    SOURCE = "Source"
    SINK = "Sink"
    BATCHES = "Batches"
    START = "Where a new stream begins"
    RESTART = "Restart"
    SPARK = "Spark"
    STORAGE = "Storage"
    #: What the submitter adds for one run of the driver; users do not set it.
    RUN = "Run"


class Kind(Enum):
    """What a value must be; the value says it in words."""

    TEXT = "a text"
    DURATION = "a number of seconds"
    WHOLE = "a whole number"
    SWITCH = "true or false"
    MAPPING = "an object of names and values"
    TEXTS = "a text or a list of texts"
    OFFSETS = "an object of the form {topic: {partition: offset}}"
    #: Checked by the class that has the setting.
    OWN = "as its class says"


#: What the driver's document may hold for each kind; numbers are checked with their limits.
_TYPES: Mapping[Kind, Any] = {
    Kind.TEXT: str,
    Kind.SWITCH: bool,
    Kind.MAPPING: Mapping,
    Kind.OFFSETS: Mapping,
    Kind.TEXTS: list | tuple,
}


@dataclass(frozen=True)
class Setting:
    """One setting: where it belongs, what it must be, and what it is for."""

    group: Group
    kind: Kind
    #: For the documentation; may hold Markdown.
    about: str
    least: float = -math.inf
    most: float = math.inf
    one_of: tuple[str, ...] = ()


def about(group: Group, kind: Kind, text: str, **limits: Any) -> dict[str, Setting]:
    """The metadata of a setting without a default: `name: str = field(metadata=about(...))`."""
    return {_KEY: Setting(group, kind, text, **limits)}


def setting(default: Any, group: Group, kind: Kind, text: str, **limits: Any) -> Any:
    """A setting with a default, as a field of a dataclass. Its type is the one that the class writes."""
    metadata = about(group, kind, text, **limits)
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def settings_of(declaration: Any) -> dict[str, Setting]:
    """The settings of a class or of an object of it, by name, in the order of their declaration."""
    return {f.name: f.metadata[_KEY] for f in fields(declaration)}


def default_of(f: Field[Any]) -> Any:
    """The default of a setting; MISSING when it must be given."""
    return f.default if f.default_factory is MISSING else f.default_factory()


def required(declaration: type[Any]) -> list[str]:
    """The names of the settings without a default."""
    return [f.name for f in fields(declaration) if default_of(f) is MISSING]


def may_be_none(declaration: Any) -> frozenset[str]:
    """The names of the settings whose default is None: no other one may be None."""
    return frozenset(f.name for f in fields(declaration) if f.default is None)


def check_value(name: str, value: Any, known: Setting) -> None:
    """Raise ConfigError for a value of another type or beyond its limits: JSON's `"drain": "false"` would drain."""
    if known.kind in (Kind.DURATION, Kind.WHOLE):
        _check_number(name, value, known)
    elif known.kind in _TYPES and not isinstance(value, _TYPES[known.kind]):
        raise ConfigError(f"{name} must be {known.kind.value}, not of type {type(value).__name__}.")
    elif known.kind is Kind.TEXTS and not all(one and isinstance(one, str) for one in value):
        raise ConfigError(f"{name} must be {known.kind.value}, and none of them empty.")
    elif known.one_of and value not in known.one_of:
        raise ConfigError(f"{name}={value!r} is none of {', '.join(known.one_of)}.")


def _check_number(name: str, value: Any, known: Setting) -> None:
    whole = known.kind is Kind.WHOLE
    kinds = int if whole else int | float
    fits = isinstance(value, kinds) and not isinstance(value, bool) and value != math.inf
    if not fits or not known.least <= value <= known.most:
        upper = "" if known.most == math.inf else f" and at most {known.most:g}"
        raise ConfigError(f"{name}={value!r} must be a {'whole ' * whole}number of at least {known.least:g}{upper}.")


def in_seconds(value: Any) -> Any:
    """A length of time as JSON holds it; anything else is returned as it is, to be checked."""
    return value.total_seconds() if isinstance(value, timedelta) else value
