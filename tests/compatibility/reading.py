"""How stored documents are read and compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def as_stored(now: Any, stored: Any) -> Any:
    """The values that this version has, without the fields that the version that stored it did not know."""
    if isinstance(now, Mapping) and isinstance(stored, Mapping):
        return {name: as_stored(now[name], stored[name]) if name in now else "missing" for name in stored}
    if isinstance(now, list | tuple) and isinstance(stored, list) and len(now) == len(stored):
        return [as_stored(*pair) for pair in zip(now, stored, strict=True)]
    return now
