"""What a trigger does when its deferred task is ended, and when only the triggerer loses it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from airflow_ckpt.streams.driver_state import Handle
from airflow_ckpt.triggers.progress import CheckpointProgressTrigger
from tests.airflow_ckpt.triggers.fakes import Play, a_trigger, run

pytestmark = pytest.mark.unit


@pytest.fixture
def task_state(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The state of the task instance in Airflow's database, in a list that a test may change."""
    state = ["deferred"]

    def states(*, dag_id: str, task_ids: list[str], run_ids: list[str], map_index: int) -> Any:
        assert (dag_id, task_ids, run_ids, map_index) == ("dag", ["task"], ["run"], -1)
        return {"run": {"task": state[0]}}

    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", states)
    return state


def killed(action: str, *, known: bool = True) -> CheckpointProgressTrigger:
    trigger = a_trigger(on_kill_action=action)
    if known:
        trigger._task_instance = SimpleNamespace(dag_id="dag", task_id="task", run_id="run", map_index=-1)
    return trigger


@pytest.mark.parametrize(
    ("action", "did"), [("stop", [("stop", "the Airflow task was ended")]), ("kill", [("kill", 0)])]
)
@pytest.mark.parametrize("state", ["failed", "success", "removed", "running"])
def test_a_deferred_task_that_a_user_ended_does_to_the_stream_what_on_kill_action_says(
    play: Play, task_state: list[str], action: str, did: Any, state: str
) -> None:
    stream = play("RUNNING")
    task_state[0] = state
    run(killed(action).on_kill())
    assert stream.did == did


@pytest.mark.parametrize("action", ["stop", "kill"])
def test_a_triggerer_that_lost_its_triggers_to_another_leaves_the_stream_alone(
    play: Play, task_state: list[str], action: str
) -> None:
    stream = play("RUNNING")
    run(killed(action).on_kill())
    assert (stream.did, stream.connected) == ([], 0)


def test_a_stream_that_is_to_be_left_is_left_without_a_question(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = play("RUNNING")
    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", lambda **_: pytest.fail("asked"))
    run(killed("leave").on_kill())
    assert (stream.did, stream.connected) == ([], 0)


@pytest.mark.parametrize("state", ["failed", "deferred"])
def test_a_job_beside_the_stream_ends_with_the_task_that_waits_for_it(
    play: Play, task_state: list[str], state: str
) -> None:
    stream = play("RUNNING")
    task_state[0] = state
    trigger = killed("leave")
    trigger.handle = Handle("process", "id", "token", {}).as_dict()
    run(trigger.on_kill())
    assert stream.did == ([("end_job", "token")] if state == "failed" else [])


def test_a_trigger_that_knows_no_task_obeys(play: Play) -> None:
    stream = play("RUNNING")
    run(killed("stop", known=False).on_kill())
    ((did, why),) = stream.did
    assert (did, bool(why)) == ("stop", True)
