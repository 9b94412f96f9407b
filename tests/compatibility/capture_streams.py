"""Declarations of streams as triggers, intents and work folders hold them, and what a driver is given for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from datetime import timedelta
from typing import Any

from airflow_ckpt.operators.submit import SparkStreamSubmitOperator
from airflow_ckpt.streams.restart_strategies import ExponentialDelay, FailureRate, FixedDelay, NoRestart
from airflow_ckpt.streams.stream import Stream
from ckpt_stream.protocol.data_loss import LostRange
from ckpt_stream.protocol.settings.setting import Kind, Setting, default_of, settings_of
from tests.compatibility.site import KAFKA

#: Every setting has another value than its default; `full` adds those that are not written here. Topics are named one by one or
#: by a pattern, not both.
GIVEN = Stream(
    name="orders", application="apps/orders.py", checkpoint="hdfs://namenode/ckpt/orders", sink="orders_out",
    source=("orders_in", "returns_in"), kafka_conn_id="kafka_prod", spark_conn_id="spark_prod",
    restart=ExponentialDelay(
        timedelta(seconds=2), timedelta(minutes=2), multiplier=3.0, reset_after=timedelta(hours=2), jitter=0.2, attempts=9
    ),
    trigger_interval="5 seconds", drain=True, stop_at={"orders_in": {0: 900}}, max_offsets_per_batch=5000,
    min_pause=0.5, batch_timeout=timedelta(minutes=20), lanes=4, transaction_timeout=120, start="explicit",
    start_timestamp_ms=1794944818086, start_offsets={"orders_in": {0: -2, 1: 40}, "returns_in": {0: -1}},
    offset_mirror="periodic", offset_mirror_period=45, malformed="dead_letter", dead_letter_topic="orders_dead",
    output_mode="update", guarantee="at_least_once", audit="record", sink_id="orders-v2", group="orders-readers",
    ledger_history=50, include_headers=True, source_options={"minPartitions": "8"}, application_version="7",
    heartbeat=2.5, options={"field": "price", "limits": {"low": 1, "high": [2, 3]}}, runner="process",
    spark_conf={"spark.executor.memory": "2g"}, env={"LANG": "C.UTF-8"}, jars=("/opt/jars/a.jar",),
    packages=("org.example:b:1.0",), py_files=("/opt/c.py",), files=("/opt/d.csv",), checkpoint_conn_id="store",
    webhdfs="http://namenode:9870", storage_options={"timeout": 5}, stall_after="15 minutes", start_timeout="7 minutes",
)  # fmt: skip
MINIMAL = Stream(name="orders", application="orders.py", checkpoint="file:///data/orders", sink="out", source="in")
PATTERN = Stream(
    name="all", application="all.py", checkpoint="s3a://bucket/all", sink="all_out", source_pattern="shop-.*", start="ledger",
    restart=FixedDelay(3, timedelta(seconds=10)),
)  # fmt: skip
TEMPLATED = Stream(
    name="{{ params.name }}", application="orders.py", checkpoint="file:///data/{{ params.name }}", sink="out", source="in",
    lanes="{{ params.lanes }}", drain="{{ params.drain }}", trigger_interval="{{ params.interval }}",
    stop_at={"in": {"0": 5}}, restart=FailureRate(4, timedelta(minutes=5), timedelta(seconds=3)),
)  # fmt: skip
PARAMS = {"name": "orders", "lanes": "3", "drain": "true", "interval": "5 seconds"}


def left_at_its_default(stream: Stream) -> list[str]:
    """The settings that the stream does not give."""
    return [
        f.name
        for f in fields(stream)
        if getattr(stream, f.name) == (f.default_factory() if f.default_factory is not MISSING else f.default)
    ]


def full() -> Stream:
    """A stream that gives every setting; the value of a setting that `GIVEN` leaves out is derived from its declaration."""
    left = [f for f in fields(Stream) if f.name in left_at_its_default(GIVEN) and f.name != "source_pattern"]
    stream = GIVEN.but(**{f.name: another_value(settings_of(Stream)[f.name], default_of(f)) for f in left})
    if (missing := left_at_its_default(stream)) != ["source_pattern"]:
        raise AssertionError(f"The stream that gives everything lacks {', '.join(missing)}.")
    return stream


def another_value(known: Setting, default: Any) -> Any:
    """A value that a setting may have, and that is not its default."""
    if known.one_of:
        return next(value for value in known.one_of if value != default)
    match known.kind:
        case Kind.SWITCH:
            return not default
        case Kind.WHOLE:
            return int(max(known.least, 1)) if default is None else default + (1 if default < known.most else -1)
        case Kind.DURATION:
            return timedelta(seconds=max(known.least, 0) + 1) if default is None else default + timedelta(seconds=1)
        case Kind.TEXT:
            return f"not-{default}"
        case Kind.TEXTS:
            return ("one", "two")
        case Kind.MAPPING:
            return {"one": "1"}
        case Kind.OFFSETS:
            return {"orders_in": {0: 7}}
    raise AssertionError(f"The value of a setting of kind {known.kind} must be written into GIVEN.")


def capture() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each by its name; the driver's document only for those that a driver could be started with."""
    operator = SparkStreamSubmitOperator(task_id="submit", stream=TEMPLATED)
    rendered = operator.render_template(TEMPLATED, {"params": PARAMS}, operator.get_template_env())
    yield "templated", {"declaration": TEMPLATED.as_dict()}
    for name, stream in (("full", full()), ("minimal", MINIMAL), ("pattern", PATTERN), ("rendered", rendered)):
        token = f"token-of-{name}"
        yield name, {"declaration": stream.as_dict(), "token": token, "driver": _driver(stream, token)}
    for strategy in (NoRestart(), FixedDelay(), FailureRate(), ExponentialDelay()):
        yield f"restart-{strategy.type}", {"declaration": MINIMAL.but(restart=strategy).as_dict()}


def _driver(stream: Stream, token: str) -> dict[str, Any]:
    document: dict[str, Any] = stream.document(KAFKA, token)
    return {**document, "accepted_loss": [LostRange("in", 0, 5, 9).as_dict(), LostRange("in", 1, 3, None).as_dict()]}
