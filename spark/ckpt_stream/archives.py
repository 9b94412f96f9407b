"""What a Python worker remembers of the archives on its path.

At the start of every task Spark tells Python to forget what it knows about the module path. For each package that was ever
imported from an archive, and for Spark's core jar, Python then reads the archive's list of files again: 140 ms per task,
twice as long as a lane takes for a small batch. A finder that is not remembered is not asked to forget; the next import
from the archive makes a new one.
"""

from __future__ import annotations

import sys
from zipimport import zipimporter


def forget_archives() -> None:
    for place, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[place]
