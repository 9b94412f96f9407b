"""Small text files on a local disk, each replaced or created in one step."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path


def read_local(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def replace_local(path: Path, text: str) -> None:
    """Replace a file of this machine in one step."""
    _written_beside(path, text).replace(path)
    # Hadoop would compare the new text with the checksum of the old one.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


#: The errors of file systems without hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)


def create_local(path: Path, text: str) -> bool:
    """Create a file of this machine in one step; False if it exists. Of several processes, one succeeds."""
    temporary = _written_beside(path, text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as e:
        if e.errno not in _NO_LINKS:
            raise
        return _create_without_link(path, text)
    finally:
        temporary.unlink()
    return True


def _create_without_link(path: Path, text: str) -> bool:
    """A reader may see it empty for a moment."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _written_beside(path: Path, text: str) -> Path:
    """Write the text to a temporary file that no other process and no other thread writes to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    return temporary
