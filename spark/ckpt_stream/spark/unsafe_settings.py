"""Refuses settings of the source, of Spark and of the environment that would break exactly-once."""

from __future__ import annotations

from collections.abc import Mapping

from ckpt_stream.errors import UnsafeSetting
from ckpt_stream.protocol.settings.config import StreamConfig

#: Settings that a user may not set (with the only allowed value, or None), and what would break. The names are in lower case,
#: because Spark accepts its options in any case.
FORBIDDEN = {
    "failondataloss": (
        "true",
        "records that retention deleted before they were read would be skipped without an error",
    ),
    "kafka.isolation.level": ("read_committed", "records of aborted transactions would be read"),
    "asyncprogresstrackingenabled": ("false", "a batch would not replay over the same offsets"),
    "minpartitions": (None, "one source partition would be read by several tasks, and the order of a key be lost"),
    "maxrecordsperpartition": (
        None,
        "one source partition would be read by several tasks, and the order of a key be lost",
    ),
    "kafka.enable.auto.commit": ("false", "offsets would be committed before their batch"),
    "startingoffsets": (None, "the stream would not begin where its `start` says"),
    "startingoffsetsbytimestamp": (None, "the stream would not begin where its `start` says"),
    "startingtimestamp": (None, "the stream would not begin where its `start` says"),
    "subscribe": (None, "the stream would not read the topics that its `source` names"),
    "subscribepattern": (None, "the stream would not read the topics that its `source_pattern` matches"),
    "assign": (None, "the stream would not read the topics that its `source` names"),
}
#: In earlier versions this variable switched the ledger off for tests. It no longer has an effect, so a driver that finds it
#: refuses to run, because it cannot do what the variable asks for.
IGNORE_LEDGER = "CKPT_TEST_IGNORE_LEDGER"


def refuse_unsafe_settings(config: StreamConfig, spark_conf: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Raise UnsafeSetting for the first setting that would break exactly-once."""
    for name, value in config.source_options.items():
        wanted, risk = FORBIDDEN.get(name.lower(), (value, ""))
        if wanted is None or str(value).lower() != str(wanted).lower():
            raise UnsafeSetting(
                f"source_options sets {name}={value!r}.", f"With it {risk}.", f"remove {name} from source_options."
            )
    if spark_conf.get("spark.speculation", "false").lower() == "true":
        raise UnsafeSetting(
            "spark.speculation is true.",
            "Two copies of a task would fence each other's transactions.",
            "set spark.speculation=false for this stream.",
        )
    if environment.get(IGNORE_LEDGER):
        raise UnsafeSetting(
            f"{IGNORE_LEDGER} is set in the driver's environment.",
            "It asks the driver to write batches again that are already in the sink.",
            f"unset {IGNORE_LEDGER} where the driver is started (Stream(env=...), the worker's or the cluster's environment).",
        )
