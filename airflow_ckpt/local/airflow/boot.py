"""Entry point of the process that becomes `airflow standalone`: database and connections first, then the components.

One interpreter runs all three commands, because each start of the Airflow command line takes seconds.
"""

from __future__ import annotations

import runpy
import sys


def boot(connections_file: str) -> None:
    """Set up and start the Airflow of an AIRFLOW_HOME. No task starts before the connections are imported."""
    commands = (
        ["db", "migrate"],
        ["connections", "import", connections_file, "--overwrite"],
        ["standalone"],
    )
    for arguments in commands:
        sys.argv = ["airflow", *arguments]
        runpy.run_module("airflow", run_name="__main__")


if __name__ == "__main__":
    boot(sys.argv[1])
