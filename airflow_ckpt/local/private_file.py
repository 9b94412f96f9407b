"""Files with secrets in them."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(file: Path, content: str) -> None:
    """Write a file that only its owner can read, from its first byte on."""
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as private:
        private.write(content)
