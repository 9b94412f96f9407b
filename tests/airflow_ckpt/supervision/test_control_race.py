"""A watchdog and a DAG act on one stream at the same moment: one of them starts the driver, the other attaches to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.runners.base import Launch
from airflow_ckpt.streams.restart_strategies import FixedDelay
from airflow_ckpt.streams.status import StreamStatus
from airflow_ckpt.supervision import control as control_module
from airflow_ckpt.supervision import intent_files, starting
from airflow_ckpt.supervision.control import StreamControl
from airflow_ckpt.supervision.launch_request import LaunchRequest
from airflow_ckpt.supervision.observing import LookBeforeStart
from airflow_ckpt.supervision.resume_plan import budget
from airflow_ckpt.supervision.starting import Starter
from ckpt_stream.protocol.run_files.restart_history import SubmitEntry, claim, read_history
from tests.airflow_ckpt.supervision.fakes import Deployment, intent_of, kinds, sleep_until, stalled
from tests.airflow_ckpt.supervision.samples import a_stream

pytestmark = pytest.mark.unit

ROUNDS = 10
Act = Callable[[StreamControl, LookBeforeStart], StreamStatus]


def at_once(world: Deployment, *acts: Act) -> list[StreamStatus]:
    """All have seen the same failure, and act on it together."""
    together = threading.Barrier(len(acts))

    def one(act: Act) -> StreamStatus:
        control = world.control(f"worker {acts.index(act)}")
        look = control.look_before_start()
        together.wait(20)
        return act(control, look)

    with ThreadPoolExecutor(len(acts)) as threads:
        return list(threads.map(one, acts))


def resumes(control: StreamControl, look: LookBeforeStart) -> StreamStatus:
    return control.resume(look)


def resumes_too(control: StreamControl, look: LookBeforeStart) -> StreamStatus:
    return control.resume(look)


def submits(control: StreamControl, look: LookBeforeStart) -> StreamStatus:
    return control.submit(submission="another run of the DAG")


@pytest.mark.parametrize("other", [resumes_too, submits])
def test_of_two_tasks_that_resume_at_once_one_starts_the_driver_and_one_restart_is_counted(
    world: Deployment, other: Act
) -> None:
    world.stream = a_stream(restart=FixedDelay(ROUNDS + 1, timedelta(0)))
    world.control().submit(submission="first")
    for n in range(ROUNDS):
        world.fails(ago=1)
        seen = at_once(world, resumes, other)
        assert len(world.runner.started) == n + 2
        assert {(s.state, s.token) for s in seen} == {("STARTING", world.token)}
        answers = [kind for kind in kinds(world) if kind != "attach"]
        assert len(answers) == n + 2
        assert other is submits or len(budget(read_history(world.files))) == n + 1


def test_two_tasks_that_submit_a_new_stream_at_once_start_one_driver(world: Deployment, tmp_path: Path) -> None:
    for n in range(ROUNDS):
        world = Deployment(tmp_path / str(n), a_stream())
        at_once(world, lambda c, _: c.submit(submission="a"), lambda c, _: c.submit(submission="b"))
        assert len(world.runner.started) == 1
        assert kinds(world)[0] == "submit"
        assert kinds(world).count("submit") == 1


def with_secrets(world: Deployment, monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """Each launch has a folder with a secret in it, and is noted here."""
    launches: list[Launch] = []

    def launch(request: LaunchRequest) -> Launch:
        folder = world.folder / "work" / request.token
        folder.mkdir(parents=True)
        (folder / "secrets.conf").write_text("sasl.password=x")
        launches.append(Launch(("spark-submit",), {}, folder, (str(folder / "secrets.conf"),)))
        return launches[-1]

    monkeypatch.setattr(world, "_launch", launch)
    return launches


def test_the_launch_of_the_task_that_comes_second_is_discarded_with_its_secrets(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = with_secrets(world, monkeypatch)
    world.control().submit()
    world.fails(ago=20)
    first, second = world.control("first"), world.control("second")
    seen = second.look_before_start()
    first.resume(first.look_before_start())
    assert second.resume(seen).token == world.token
    assert [launch.folder.exists() for launch in launches] == [True, True, False]


@pytest.mark.parametrize("where", ["claim", "write_new_intent"])
@pytest.mark.parametrize("error", [PermissionError("the storage is away"), KeyboardInterrupt()])
def test_where_no_driver_is_started_no_secret_stays(
    world: Deployment, monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    launches = with_secrets(world, monkeypatch)
    monkeypatch.setattr(
        *{"claim": (starting, "claim"), "write_new_intent": (intent_files, "write_new_intent")}[where], fails
    )
    with pytest.raises(type(error)):
        world.control().submit()
    assert [launch.folder.exists() for launch in launches] == [False]


def test_an_interrupted_wait_for_the_task_that_came_first_leaves_no_secret(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    launches = with_secrets(world, monkeypatch)
    claim(world.files, SubmitEntry("another", "another task", "NEW"), None)
    sleep_until(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        world.control().submit()
    assert [launch.folder.exists() for launch in launches] == [False]


def test_a_task_that_dies_right_after_its_claim_is_waited_for_and_then_replaced(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.control().submit()
    world.fails(ago=20)
    begin = intent_files.write_new_intent

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(intent_files, "write_new_intent", die)
    control = world.control("dies")
    with pytest.raises(KeyboardInterrupt):
        control.resume(control.look_before_start())
    monkeypatch.setattr(intent_files, "write_new_intent", begin)
    assert len(world.runner.started) == 1

    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    control = world.control("the next one")
    assert control.resume(control.look_before_start()).token == world.token
    assert clock[0] >= starting.CLAIM_SECONDS
    assert len(world.runner.started) == 2
    # The attempt that came to nothing counts too, as one that fails at once does.
    assert len(budget(read_history(world.files))) == 2
    assert intent_of(world).token == world.token


def test_of_two_tasks_that_find_the_claimant_dead_one_starts_the_driver(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.control().submit()
    world.fails(ago=20)
    control = world.control("dies")
    with monkeypatch.context() as interrupted:
        interrupted.setattr(Starter, "_start", lambda *_: None)
        control.resume(control.look_before_start())
    monkeypatch.setattr(starting, "CLAIM_SECONDS", 0.5)
    seen = at_once(world, resumes, resumes_too)
    assert len(world.runner.started) == 2
    assert {s.token for s in seen} == {world.token}


def test_a_task_that_comes_late_to_a_stalled_driver_does_not_kill_the_next(world: Deployment) -> None:
    stalled(world)
    first, second = world.control("first"), world.control("second")
    seen_by_both = second.look_before_start()
    first.resume(first.look_before_start())
    restarted = world.token
    assert second.resume(seen_by_both).token == restarted
    assert restarted not in world.runner.killed
    assert len(world.runner.started) == 2


def test_a_task_that_waits_for_the_other_sees_its_driver_as_soon_as_it_is_known(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the claim and the intent no look can find the driver yet."""
    world.control().submit()
    world.fails(ago=20)
    first, second = world.control("first"), world.control("second")
    late: list[Callable[[], StreamStatus]] = []
    start = Starter._start

    def hesitate(*arguments: object) -> None:
        late.append(lambda: start(*arguments))  # type: ignore[arg-type]

    monkeypatch.setattr(Starter, "_start", hesitate)
    first.resume(first.look_before_start())
    pauses = sleep_until(monkeypatch, lambda: late.pop()() and None if late else None)
    assert second.resume(second.look_before_start()).token == world.token
    assert len(pauses) == 1
    assert len(world.runner.started) == 2


def test_a_stream_that_was_started_and_asked_to_stop_meanwhile_is_attached_to(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Preflight was about the driver that failed: it allows no start after another one."""
    world.control().submit()
    world.fails(ago=20)
    read = control_module.read_start_conditions

    def another_user_is_faster(access: Any, look: LookBeforeStart) -> Any:
        found = read(access, look)
        monkeypatch.setattr(control_module, "read_start_conditions", read)
        world.control("another user").submit()
        world.control("another user").request_stop()
        return found

    control = world.control()
    look = control.look_before_start()
    monkeypatch.setattr(control_module, "read_start_conditions", another_user_is_faster)

    assert control.resume(look).token == world.token
    assert (len(world.runner.started), kinds(world)) == (2, ["submit", "submit"])


def test_clearing_a_submit_that_another_task_has_preceded_begins_no_new_budget(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen that there is no driver; the other one is faster."""
    launch = world._launch

    def another_task_is_faster(request: LaunchRequest) -> Launch:
        monkeypatch.setattr(world, "_launch", launch)
        world.control("another task").submit(submission="another run")
        return launch(request)

    monkeypatch.setattr(world, "_launch", another_task_is_faster)
    assert world.control().submit(submission="this run").token == world.token
    assert kinds(world) == ["submit", "attach"]
    world.fails(ago=11)

    world.control("the same task, cleared").submit(submission="this run")
    assert (len(world.runner.started), kinds(world)) == (2, ["submit", "attach", "restart"])
