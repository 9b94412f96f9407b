"""Counts requests per IP address in tumbling windows of five seconds of event time.

A record's value is a line of an NGINX or Apache access log (common or combined format), or ``{"time": ..., "ip": ...}``
with an ISO 8601 time or seconds since 1970. With output mode ``append`` (the default) each IP and window gives one final
record, once the watermark has passed the window's end by the lateness; with ``update`` each batch gives the counts so far.
Options: ``window`` and ``lateness``, both ``"5 seconds"`` by default.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ckpt_stream import option, run, well_formed

# host ident user [time] "request" status bytes, then anything (the combined format adds referrer and agent)
LINE = r'^(\S+) \S+ .*?\[([^\]]+)\] "(?:[^"\\]|\\.)*" \d{3} (?:\d+|-)'
IP = r"^(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]+)$"
LOG_TIME = "dd/MMM/yyyy:HH:mm:ss Z"


def parsed(events: DataFrame) -> DataFrame:
    """Add the columns ``time`` and ``ip``; both are null if the value is neither a log line nor such JSON."""
    line = F.col("value").cast("string")
    is_json = line.startswith("{")
    json_time = F.get_json_object(line, "$.time")
    found_ip = F.when(is_json, F.get_json_object(line, "$.ip")).otherwise(F.regexp_extract(line, LINE, 1))
    found_time = F.when(is_json, _time(json_time)).otherwise(
        F.try_to_timestamp(F.regexp_extract(line, LINE, 2), F.lit(LOG_TIME))
    )
    valid = found_ip.rlike(IP) & found_time.isNotNull()
    return events.withColumn("ip", F.when(valid, found_ip)).withColumn("time", F.when(valid, found_time))


def _time(text: Column) -> Column:
    return F.coalesce(F.timestamp_seconds(text.try_cast("double")), F.try_to_timestamp(text))


def transform(events: DataFrame) -> DataFrame:
    requests = well_formed(parsed(events), F.col("ip").isNotNull())
    counts = (
        requests.withWatermark("time", option("lateness", "5 seconds"))
        .groupBy(F.window("time", option("window", "5 seconds")), "ip")
        .count()
    )
    result = F.struct(
        "ip",
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        "count",
    )
    return counts.select(F.col("ip").alias("key"), F.to_json(result).alias("value"))


if __name__ == "__main__":
    run(transform)
