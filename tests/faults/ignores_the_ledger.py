"""Copies like copy_topic with a driver that does not ask the ledger: the negative control of the ledger's decision.

Only code can switch it off. A driver whose environment asks for it refuses to run.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ckpt_stream.driver.driver import Driver
from ckpt_stream.machine.application_input import find_document
from ckpt_stream.protocol.settings.config import from_json
from ckpt_stream.spark.session import stream_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def transform(events: DataFrame) -> DataFrame:
    return events.select("key", "value")


if __name__ == "__main__":
    config = from_json(find_document(sys.argv))
    spark = stream_session(config)
    code, last_line = Driver(spark, config, transform, ignore_ledger=True).run()
    spark.stop()
    print(last_line, file=sys.stderr)
    sys.exit(code)
