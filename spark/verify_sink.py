"""Reads a sink for `airflow-ckpt`'s verification as a Spark job, where the range is too large for one process.

It is submitted with the document that `Plan.job` gives, and writes what it found to the file that the document names.
"""

from __future__ import annotations

from ckpt_stream.sink_job import main

if __name__ == "__main__":
    main()
