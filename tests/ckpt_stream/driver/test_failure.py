"""The failure of a run, from texts that Spark really throws."""

from __future__ import annotations

import pytest

from ckpt_stream import errors
from ckpt_stream.driver.batch_progress import BatchProgress
from ckpt_stream.driver.failure import LONGEST_MESSAGE, describe
from ckpt_stream.protocol.ledger.decision import decide
from tests.ckpt_stream.samples import about_to_write, held

pytestmark = pytest.mark.unit

#: What a StreamingQueryException says when a task failed: the task's Python traceback, then the stack of the JVM.
TASK_FAILED = """[STREAM_FAILED] Query [id = 6f41, runId = 9a] terminated with exception: An exception was raised \
by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/opt/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
pyspark.errors.exceptions.captured.PythonException:
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/opt/spark/python/pyspark/worker.py", line 1961, in main
    process()
  File "/opt/app/ckpt_stream/driver/lane.py", line 58, in write_lane
    decision = decide(last, lane, spec.to_write)
{error}

    at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
    ... 1 more
 SQLSTATE: XXKST"""
POISON = '{"topic":"orders","partition":2,"offset":41,"once":%s,"reason":"the word ERROR"}'


class StreamingQueryException(Exception):
    """Named as Spark's own."""


def thrown(error: str) -> Exception:
    return StreamingQueryException(TASK_FAILED.replace("{error}", error))


def progress(batch: int | None = 5, error: BaseException | None = None) -> BatchProgress:
    return BatchProgress(current=None if batch is None else (batch, 0.0), error=error)


def refusal() -> errors.Refused:
    with pytest.raises(errors.Refused) as refused:
        decide(held(8), 0, about_to_write(5))
    return refused.value


@pytest.mark.parametrize(
    ("name", "restart_may_help"),
    [("LedgerAhead", False), ("SinkRejected", False), ("CommitUnknown", True), ("Fenced", True), ("SinkError", True)],
)
def test_our_error_from_a_task_keeps_its_name_its_message_and_whether_a_restart_helps(
    name: str, restart_may_help: bool
) -> None:
    failure = describe(thrown(f"ckpt_stream.errors.{name}: what was found. What helps: this."), progress())
    assert (failure.error, failure.message) == (name, "what was found. What helps: this.")
    assert failure.restart_may_help is restart_may_help
    assert (failure.batch, failure.poison) == (5, None)


def test_every_error_of_ours_is_found_again_by_its_name() -> None:
    kinds = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.StreamError)]
    assert len(kinds) > 10
    for kind in kinds:
        failure = describe(thrown(f"ckpt_stream.errors.{kind.__name__}: words"), None)
        assert (failure.error, failure.restart_may_help) == (kind.__name__, kind.restart_may_help)


def test_our_error_is_known_by_its_name_in_a_module_of_a_subpackage_too() -> None:
    failure = describe(thrown("ckpt_stream.protocol.errors.LedgerAhead: words"), progress())
    assert (failure.error, failure.message, failure.restart_may_help) == ("LedgerAhead", "words", False)


@pytest.mark.parametrize("name", ["errors.Surprise", "ledger.LedgerRecord", "errors.annotations"])
def test_a_name_that_is_no_error_of_ours_is_not_taken_for_one(name: str) -> None:
    failure = describe(thrown(f"ckpt_stream.{name}: words"), None)
    assert failure.error == "StreamingQueryException"
    assert failure.restart_may_help is True


def test_our_error_raised_on_the_driver_is_taken_as_it_is() -> None:
    error = refusal()
    failure = describe(error, None)
    assert (failure.error, failure.message) == ("LedgerAhead", str(error))
    assert (failure.batch, failure.restart_may_help) == (None, False)


def test_the_sinks_own_error_is_preferred_to_the_one_that_spark_wraps_it_in() -> None:
    error = refusal()
    failure = describe(StreamingQueryException("[STREAM_FAILED] something"), progress(error=error))
    assert (failure.error, failure.message, failure.batch) == ("LedgerAhead", str(error), 5)


def test_our_own_error_on_the_driver_is_preferred_to_the_sinks_error() -> None:
    late = errors.BatchTimeout("Batch 5 took longer than batch_timeout.")
    failure = describe(late, progress(error=RuntimeError("the query was stopped")))
    assert (failure.error, failure.batch) == ("BatchTimeout", 5)


@pytest.mark.parametrize("once", [True, False])
def test_a_poison_record_is_found_and_a_restart_helps_if_it_then_counts_as_consumed(once: bool) -> None:
    poison = POISON % str(once).lower()
    text = f"org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] ckpt-poison:{poison} SQLSTATE: P0001"
    failure = describe(thrown(text), progress())
    assert failure.error == "PoisonRecord"
    assert failure.message == "the word ERROR at orders-2 offset 41"
    assert failure.poison == {"topic": "orders", "partition": 2, "offset": 41, "once": once, "reason": "the word ERROR"}
    assert (failure.batch, failure.restart_may_help) == (5, once)


def test_a_poison_record_is_found_in_the_error_of_the_sink_or_of_spark() -> None:
    seen = RuntimeError(f"ckpt-poison:{POISON % 'true'}")
    for failure in (
        describe(RuntimeError("x"), progress(error=seen)),
        describe(seen, progress(error=RuntimeError("x"))),
    ):
        assert failure.error == "PoisonRecord"


@pytest.mark.parametrize(
    "text",
    [
        "[STREAM_FAILED_INCOMPATIBLE_SOMETHING] x",
        "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match",
        "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] x",
        "[PARSE_SYNTAX_ERROR] x",
        "pyspark.errors.exceptions.captured.AnalysisException: no such column",
    ],
)
def test_errors_of_spark_that_a_restart_cannot_cure_are_known(text: str) -> None:
    assert describe(StreamingQueryException(text), None).restart_may_help is False


@pytest.mark.parametrize(
    "text", ["Connection refused", "java.lang.OutOfMemoryError: Java heap space", "Lost executor 3"]
)
def test_any_other_error_may_pass(text: str) -> None:
    assert describe(RuntimeError(text), None).restart_may_help is True


def test_the_end_of_a_traceback_is_the_message_not_its_beginning() -> None:
    failure = describe(thrown("KeyError: 'price'"), progress())
    assert failure.message == "KeyError: 'price'"


def test_the_last_cause_is_the_message_of_a_java_error() -> None:
    lines = [
        "Job aborted",
        "\tat org.apache.X.y(Z.scala:1)",
        "Caused by: java.io.IOException: outer",
        "\tat a.b(C.java:2)",
        "Caused by: java.net.ConnectException: refused",
        "\t... 3 more",
    ]
    assert describe(RuntimeError("\n".join(lines)), None).message == "java.net.ConnectException: refused"


def test_the_stack_of_a_java_error_is_left_out() -> None:
    text = "Job aborted\n\tat org.apache.X.y(Z.scala:1)\n\t... 3 more\n"
    assert describe(RuntimeError(text), None).message == "Job aborted"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError(""), RuntimeError("\n \n")])
def test_an_error_without_a_message_says_so(error: BaseException) -> None:
    failure = describe(error, None)
    assert (failure.error, failure.message) == (type(error).__name__, "no message")


def test_a_message_is_one_line_of_bounded_length() -> None:
    message = describe(RuntimeError("word\n\n" * 10_000), None).message
    assert "\n" not in message
    assert len(message) == LONGEST_MESSAGE


@pytest.mark.parametrize("current", [None, 7])
def test_the_batch_is_the_one_that_was_being_written(current: int | None) -> None:
    assert describe(RuntimeError("x"), progress(current)).batch == current


@pytest.mark.parametrize(
    "name", ["TopicAuthorizationException", "GroupAuthorizationException", "SaslAuthenticationException"]
)
def test_a_restart_does_not_help_where_the_source_may_not_be_read(name: str) -> None:
    error = RuntimeError(f"Query terminated.\nCaused by: org.apache.kafka.common.errors.{name}: not allowed")
    failure = describe(error, None)
    assert failure.restart_may_help is False
    assert name in failure.message
