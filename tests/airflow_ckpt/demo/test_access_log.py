"""The access log of the demo: what Kafka does not take is an error, and never a smaller log."""

from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_ckpt.demo import run_demo
from airflow_ckpt.demo.access_log import AccessLog
from airflow_ckpt.exceptions import StackError

pytestmark = pytest.mark.unit


class FullProducer:
    """A producer whose brokers take all but these lines."""

    unsent = 3

    def __init__(self, *_: object) -> None: ...

    def produce(self, *_: object, **__: object) -> None: ...

    def poll(self, *_: object) -> None: ...

    def flush(self, *_: object) -> int:
        return self.unsent


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> AccessLog:
    monkeypatch.setattr("confluent_kafka.Producer", FullProducer)
    return AccessLog({}, ("lines",), 0.01, 100)


def test_lines_that_kafka_does_not_take_are_an_error_of_the_stack(log: AccessLog) -> None:
    log.run()

    assert isinstance(log.error, StackError)
    assert log.error.kind == "not_accepted"
    assert re.findall(r"\d+ lines", str(log.error)) == ["3 lines"]


def test_a_log_whose_end_was_not_taken_is_not_counted(log: AccessLog) -> None:
    nothing: Any = None
    log.start()

    with pytest.raises(StackError) as refused:
        run_demo._finish([], log, nothing, nothing, lambda _: None)

    assert (refused.value.kind, refused.value.__cause__) == ("log_not_written", log.error)
    assert isinstance(log.error, StackError)
    assert log.error.kind == "not_accepted"


def test_a_log_that_was_taken_as_a_whole_has_no_error(log: AccessLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FullProducer, "unsent", 0)
    log.run()

    log.refuse_error()
    assert log.lines >= 1
