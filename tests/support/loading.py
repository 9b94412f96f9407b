"""What a new Python has loaded after an import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def modules_below(package: Path) -> list[str]:
    """The dotted names of all modules of a package."""
    files = (file.relative_to(package.parent).with_suffix("") for file in sorted(package.rglob("*.py")))
    return [".".join(file.parts[:-1] if file.name == "__init__" else file.parts) for file in files]


def loaded_by(modules: list[str], watched: tuple[str, ...], *, path: Path = ROOT, then: str = "") -> set[str]:
    """Which of the watched packages a new Python has after it imported these modules, and then ran this line."""
    code = (
        "import importlib, json, sys\n"
        f"sys.path.insert(0, {str(path)!r})\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"import {modules[0]}\n"
        f"{then}\n"
        f"print(json.dumps([name for name in {watched!r} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))
