"""The declaration of a stream's setting: its group, its kind, its limits, and the sentence that documents it."""

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
    """The part of a stream that a setting belongs to; the value is the heading in the documentation and in forms."""

    STREAM = "The stream"
    SOURCE = "Source"
    SINK = "Sink"
    BATCHES = "Batches"
    START = "Where a new stream begins"
    RESTART = "Restart"
    SPARK = "Spark"
    STORAGE = "Storage"
    #: The submitter sets these for one run of the driver; users do not set them.
    RUN = "Run"


class Kind(Enum):
    """The type of a setting; the value describes it in words."""

    TEXT = "a text"
    DURATION = "a number of seconds"
    WHOLE = "a whole number"
    SWITCH = "true or false"
    MAPPING = "an object of names and values"
    TEXTS = "a text or a list of texts"
    OFFSETS = "an object of the form {topic: {partition: offset}}"
    #: The class that declares the setting checks it.
    OWN = "as its class says"


#: The JSON types of each kind in the driver's document; numbers are checked with their limits.
_TYPES: Mapping[Kind, Any] = {
    Kind.TEXT: str,
    Kind.SWITCH: bool,
    Kind.MAPPING: Mapping,
    Kind.OFFSETS: Mapping,
    Kind.TEXTS: list | tuple,
}


@dataclass(frozen=True)
class Setting:
    """One setting: its group, its kind and limits, and its description."""

    group: Group
    kind: Kind
    #: The description, for the documentation and for forms; may contain Markdown.
    about: str
    least: float = -math.inf
    most: float = math.inf
    one_of: tuple[str, ...] = ()


def about(group: Group, kind: Kind, text: str, **limits: Any) -> dict[str, Setting]:
    """The metadata of a setting without a default: `name: str = field(metadata=about(...))`."""
    return {_KEY: Setting(group, kind, text, **limits)}


def setting(default: Any, group: Group, kind: Kind, text: str, **limits: Any) -> Any:
    """A setting with a default, as a field of a dataclass; the class declares its type."""
    metadata = about(group, kind, text, **limits)
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def settings_of(declaration: Any) -> dict[str, Setting]:
    """The settings of a class or of an object, by name, in the order of their declaration."""
    return {f.name: f.metadata[_KEY] for f in fields(declaration)}


def default_of(f: Field[Any]) -> Any:
    """The default of a setting; MISSING if it has none."""
    return f.default if f.default_factory is MISSING else f.default_factory()


def required(declaration: type[Any]) -> list[str]:
    """The names of the settings without a default."""
    return [f.name for f in fields(declaration) if default_of(f) is MISSING]


def may_be_none(declaration: Any) -> frozenset[str]:
    """The names of the settings whose default is None; only these may be None."""
    return frozenset(f.name for f in fields(declaration) if f.default is None)


def check_value(name: str, value: Any, known: Setting) -> None:
    """Raise ConfigError for a value of another type or beyond its limits: the text `"false"`, for example, counts as true."""
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
    """A duration as seconds, for JSON; any other value is returned unchanged, for the check."""
    return value.total_seconds() if isinstance(value, timedelta) else value
