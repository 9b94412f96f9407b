"""Python's cached importers of zip archives, which make every later task of a worker slow.

At the start of every task Spark invalidates Python's import caches. For each package that was ever imported from an archive,
and for Spark's core jar, Python's importer then reads the archive's list of files again. That takes 140 ms per task, twice as
long as a lane needs for a small batch. An importer that is not in the cache is not invalidated, and the next import from the
archive creates a new one.
"""

from __future__ import annotations

import sys
from zipimport import zipimporter


def drop_archive_importers() -> None:
    """Remove the importers of archives from Python's cache."""
    for place, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[place]
