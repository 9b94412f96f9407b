"""Hides Kafka's secrets in Spark's output: plans, web pages, the event log and the messages of errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ckpt_stream.protocol.settings.secret_names import SENSITIVE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A key or certificate in a text, complete or cut off.
PEM = r"-----BEGIN [A-Z ]+-----[^-]*(?:-----END [A-Z ]+-----)?"
#: Spark hides an option or property if this is found in its name or in its value. The first four are its own default.
SENSITIVE_OPTION = rf"(?i)secret|password|token|access[.]?key|{SENSITIVE}|-----BEGIN "


def redaction_settings(given: Mapping[str, str]) -> dict[str, str]:
    """The settings that make Spark hide Kafka's secrets, besides everything that the deployment hides."""
    ours = {"spark.redaction.regex": SENSITIVE_OPTION, "spark.redaction.string.regex": PEM}
    return {name: f"(?:{given[name]})|(?:{hidden})" if given.get(name) else hidden for name, hidden in ours.items()}


def without_fallback(events: DataFrame) -> DataFrame:
    """Remove the relation for Spark's old sources from the stream's plan, where it is not used.

    Wherever Spark prints the plan, it prints that relation with all of its options, passwords included: in the message of
    every AnalysisException, such as for a column that does not exist, and in what PySpark logs about it.
    """
    from pyspark.sql import DataFrame

    spark: Any = events.sparkSession
    plan: Any = events._jdf.logicalPlan()
    parts = [plan.productElement(i) for i in range(plan.productArity())]
    unused = [_is_fallback(part) for part in parts]
    if not any(unused):
        return events
    arguments = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.Object, len(parts))
    for i, part in enumerate(parts):
        arguments[i] = spark._jvm.scala.Option.empty() if unused[i] else part
    frame = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan.makeCopy(arguments))
    return DataFrame(frame, spark)


def _is_fallback(part: Any) -> bool:
    from py4j.java_gateway import JavaObject

    if not isinstance(part, JavaObject) or part.getClass().getName() != "scala.Some":
        return False
    return bool(part.get().getClass().getSimpleName() == "StreamingRelation")
