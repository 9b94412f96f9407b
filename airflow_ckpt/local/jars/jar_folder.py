"""A folder of jars with a manifest, which shows whether the folder is complete."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"


def is_complete(folder: Path, coordinates: Sequence[str]) -> bool:
    """Whether the folder has the files of its manifest, by name and size (to hash 50 MB each time would take too long)."""
    manifest = _read_manifest(folder)
    if manifest is None or manifest.get("coordinates") != list(coordinates) or not manifest.get("files"):
        return False
    return all(_size(folder / name) == entry["size"] for name, entry in manifest["files"].items())


def damage(folder: Path) -> str | None:
    """The damage of the downloaded jars, if there is any."""
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        return "no jars arrived"
    return next((f"{jar.name} arrived damaged" for jar in jars if not zipfile.is_zipfile(jar)), None)


def publish(filled: Path, target: Path, coordinates: Sequence[str]) -> None:
    """Write the manifest, and rename the folder to its final name in one step."""
    files = {jar.name: {"size": jar.stat().st_size, "sha256": _sha256(jar)} for jar in sorted(filled.glob("*.jar"))}
    (filled / MANIFEST).write_text(json.dumps({"coordinates": list(coordinates), "files": files}, indent=1))
    if target.exists():
        shutil.rmtree(target)
    filled.rename(target)


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) else None


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
