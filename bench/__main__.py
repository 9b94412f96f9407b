"""`make bench`: prints a table for people and, last, one line of JSON."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import sink, triggers, verify
from bench.broker_and_spark import kafka, spark_session

PARTS = ("verify", "small", "throughput", "triggers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="the parts to measure")
    options = parser.parse_args()

    def announce(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    result: dict[str, Any] = {}
    if "verify" in options.only:
        with kafka() as cluster:
            reading = verify.rates(cluster, options.records, options.rounds, announce)
        result["verify_rate_vs_plain_consumer"] = round(reading["verify"] / reading["plain"], 3)
        result["verify_memory_growth_mb"] = round(reading["memory_growth_mb"], 1)
    if {"small", "throughput"} & set(options.only):
        small: dict[str, float] = {}
        rates: dict[str, float] = {}
        with kafka() as cluster, spark_session() as spark:
            if "small" in options.only:
                small = sink.small_batches(spark, cluster, options.batches, 1000, options.lanes, announce)
            if "throughput" in options.only:
                rates = sink.throughput(spark, cluster, options.records, options.lanes, options.rounds, announce)
        show(rates, small)
        result.update(ratios(rates, small, [str(n) for n in options.lanes]))
    # Last: it brings Airflow into this process, which writes a log, and clients that live on.
    if "triggers" in options.only:
        with kafka() as cluster:
            result["triggers"] = triggers.watch(cluster, announce)
    print(json.dumps(result))


def show(rates: dict[str, float], small: dict[str, float]) -> None:
    table = Table(title="this sink against Spark's own (at-least-once)")
    for column in ("sink", "records/s", "ratio", "small batch, ms", "ratio"):
        table.add_column(column, justify="right")
    for name in rates or small:
        cells = ["Spark's own" if name == "spark" else f"{name} lane(s)"]
        cells += [f"{rates[name]:,.0f}", f"{rates[name] / rates['spark']:.2f}"] if rates else ["", ""]
        cells += [f"{small[name]:.0f}", f"{small[name] / small['spark']:.2f}"] if small else ["", ""]
        table.add_row(*cells)
    Console().print(table)


def ratios(rates: dict[str, float], small: dict[str, float], lanes: list[str]) -> dict[str, Any]:
    """Against Spark's own sink; the first number of lanes asked for counts as the default."""
    found: dict[str, Any] = {}
    if rates:
        best = max(lanes, key=lambda n: rates[n])
        found["copy_throughput_vs_spark_sink"] = round(rates[lanes[0]] / rates["spark"], 3)
        found["copy_throughput_vs_spark_sink_best_lanes"] = round(rates[best] / rates["spark"], 3)
        found["best_lanes"] = int(best)
    if small:
        found["small_batch_time_vs_spark_sink"] = round(small[lanes[0]] / small["spark"], 3)
        found["small_batch_time_vs_spark_sink_best_lanes"] = round(min(small[n] for n in lanes) / small["spark"], 3)
    return found


if __name__ == "__main__":
    main()
