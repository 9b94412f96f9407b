"""Packs the library that runs in Spark into one file, which is sent with each driver."""

from __future__ import annotations

import zipfile
from pathlib import Path


def write_library(path: Path) -> Path:
    """Write ckpt_stream as a zip, so that a cluster needs only Python, pyspark and confluent-kafka."""
    import ckpt_stream

    package = Path(str(ckpt_stream.__file__)).parent
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in sorted(package.rglob("*.py")):
            archive.write(module, module.relative_to(package.parent))
    return path
