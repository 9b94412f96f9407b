"""Keeps the secrets of Kafka out of what Spark shows: plans, its web pages, its event log and the messages of its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckpt_stream.security import SENSITIVE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROPERTY, TEXT_PROPERTY = "spark.redaction.regex", "spark.redaction.string.regex"
#: A key or certificate in a text; the text may have been cut in the middle of it.
PEM = r"-----BEGIN [A-Z ]+-----[^-]*(?:-----END [A-Z ]+-----)?"
#: Spark hides an option or property if this is found in its name or in its value. The first four are its own default.
HIDDEN = rf"(?i)secret|password|token|access[.]?key|{SENSITIVE}|-----BEGIN "


def session(name: str) -> SparkSession:
    """The application's Spark session, which hides secrets besides what the deployment has it hide."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    # Without a JVM a SparkConf knows nothing of what spark-submit was given.
    SparkContext._ensure_initialized()
    given = SparkConf()
    builder = SparkSession.builder.appName(name)
    for setting, ours in ((PROPERTY, HIDDEN), (TEXT_PROPERTY, PEM)):
        theirs = given.get(setting, None)
        builder = builder.config(setting, f"(?:{theirs})|(?:{ours})" if theirs else ours)
    return builder.getOrCreate()


def without_fallback(events: DataFrame) -> DataFrame:
    """The same stream without the relation for Spark's old sources that its plan carries along and never uses.

    Spark prints that one with all of its options, passwords included, wherever it prints the plan: in the message of every
    AnalysisException, such as for a column that does not exist, and in what PySpark logs about it.
    """
    from pyspark.sql import DataFrame

    spark: Any = events.sparkSession
    plan: Any = events._jdf.logicalPlan()
    parts = [plan.productElement(i) for i in range(plan.productArity())]
    known = [_is_fallback(part) for part in parts]
    if not any(known):
        return events
    arguments = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.Object, len(parts))
    for i, part in enumerate(parts):
        arguments[i] = spark._jvm.scala.Option.empty() if known[i] else part
    made = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan.makeCopy(arguments))
    return DataFrame(made, spark)


def _is_fallback(part: Any) -> bool:
    from py4j.java_gateway import JavaObject

    if not isinstance(part, JavaObject) or part.getClass().getName() != "scala.Some":
        return False
    return bool(part.get().getClass().getSimpleName() == "StreamingRelation")
