"""A task that meets a Kafka without an answer: the stream may be well, so the task's retries ask again."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_ckpt.operators.submit import SparkStreamSubmitOperator
from ckpt_stream.errors import KafkaUnreachable, LedgerUndecided
from tests.airflow_ckpt.operators.fakes import Play, a_context, make

pytestmark = pytest.mark.unit


def last_try() -> dict[str, Any]:
    context = a_context()
    context["ti"].try_number = context["ti"].max_tries + 1
    return context


def test_a_task_that_gets_no_answer_from_kafka_fails_as_it_is_and_calls_no_notifier(play: Play) -> None:
    """On its last try too: the refusal of a stream is reported there, and this is none."""
    control, told = play("RUNNING"), []
    control.refusal = KafkaUnreachable("no answer")
    operator = make(SparkStreamSubmitOperator, notify=lambda c: told.append(c["ckpt"]["event"]))
    with pytest.raises(KafkaUnreachable) as failed:
        operator.execute(last_try())
    assert not isinstance(failed.value, AirflowFailException)
    assert told == []


def test_another_error_of_the_stream_calls_the_notifier_on_the_last_try(play: Play) -> None:
    control, told = play("RUNNING"), []
    control.refusal = LedgerUndecided("look again")
    operator = make(SparkStreamSubmitOperator, notify=lambda c: told.append(c["ckpt"]["event"]))
    with pytest.raises(Exception, match="LedgerUndecided"):
        operator.execute(last_try())
    assert told == ["given_up"]
