from __future__ import annotations

import pytest

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.processes.waiting import wait_for

pytestmark = pytest.mark.unit


def test_a_wait_that_times_out_names_what_it_waited_for() -> None:
    with pytest.raises(StackError, match="the moon to rise"):
        wait_for(lambda: None, "the moon to rise", 0)


def test_a_wait_returns_the_first_true_answer() -> None:
    answers = iter(["", "a first", "a second"])

    assert wait_for(lambda: next(answers), "an answer", 10, pause=0) == "a first"
