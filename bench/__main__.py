"""`make bench`: prints a table for people and, last, one line of JSON."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import sink, verify
from bench.stack import kafka, spark_session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with kafka() as cluster:
        reading = verify.rates(cluster, options.records, say)
    with kafka() as cluster, spark_session() as spark:
        small = sink.small_batches(spark, cluster, options.batches, 1000, options.lanes, say)
        rates = sink.throughput(spark, cluster, options.records, options.lanes, say)
    report(rates, small, reading)


def report(rates: dict[str, float], small: dict[str, float], reading: dict[str, float]) -> None:
    table = Table(title="this sink against Spark's own (at-least-once)")
    for column in ("sink", "records/s", "ratio", "small batch, ms", "ratio"):
        table.add_column(column, justify="right")
    for name, rate in rates.items():
        label = "Spark's own" if name == "spark" else f"{name} lane(s)"
        table.add_row(
            label,
            f"{rate:,.0f}",
            f"{rate / rates['spark']:.2f}",
            f"{small[name]:.0f}",
            f"{small[name] / small['spark']:.2f}",
        )
    Console().print(table)
    lanes = [name for name in rates if name != "spark"]
    default = lanes[0]
    result: dict[str, Any] = {
        "copy_throughput_vs_spark_sink": round(rates[default] / rates["spark"], 3),
        "small_batch_time_vs_spark_sink": round(small[default] / small["spark"], 3),
        "copy_throughput_vs_spark_sink_best_lanes": round(max(rates[n] for n in lanes) / rates["spark"], 3),
        "best_lanes": int(max(lanes, key=lambda n: rates[n])),
        "small_batch_time_vs_spark_sink_best_lanes": round(min(small[n] for n in lanes) / small["spark"], 3),
    }
    result["verify_rate_vs_plain_consumer"] = round(reading["verify"] / reading["plain"], 3)
    result["verify_memory_growth_mb"] = round(reading["memory_growth_mb"], 1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
