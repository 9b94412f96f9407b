"""Two who look after one stream, a watchdog and a DAG, act at the same moment: one starts the driver, both have it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_ckpt.runners.base import Launch
from airflow_ckpt.streams import control as control_module
from airflow_ckpt.streams import intent as intents
from airflow_ckpt.streams import restarts
from airflow_ckpt.streams.control import Order, StreamControl
from airflow_ckpt.streams.restart import FixedDelay
from airflow_ckpt.streams.restarts import budget, read_history
from airflow_ckpt.streams.status import StreamStatus
from tests.airflow_ckpt.streams.fakes import Deployment, intent_of, kinds, sleep_until, stalled
from tests.airflow_ckpt.streams.samples import a_stream

pytestmark = pytest.mark.unit

ROUNDS = 10
Act = Callable[[StreamControl, StreamStatus], StreamStatus]


def at_once(world: Deployment, *acts: Act) -> list[StreamStatus]:
    """All have seen the same failure, and act on it together."""
    together = threading.Barrier(len(acts))

    def one(act: Act) -> StreamStatus:
        control = world.control(f"worker {acts.index(act)}")
        status = control.status()
        together.wait(20)
        return act(control, status)

    with ThreadPoolExecutor(len(acts)) as threads:
        return list(threads.map(one, acts))


def resumes(control: StreamControl, status: StreamStatus) -> StreamStatus:
    return control.resume(status)


def resumes_too(control: StreamControl, status: StreamStatus) -> StreamStatus:
    return control.resume(status)


def submits(control: StreamControl, status: StreamStatus) -> StreamStatus:
    return control.submit(submission="another run of the DAG")


@pytest.mark.parametrize("other", [resumes_too, submits])
def test_of_two_who_resume_at_once_one_starts_the_driver_and_one_restart_is_counted(
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


def test_two_who_submit_a_new_stream_at_once_start_one_driver(world: Deployment, tmp_path: Path) -> None:
    for n in range(ROUNDS):
        world = Deployment(tmp_path / str(n), a_stream())
        at_once(world, lambda c, _: c.submit(submission="a"), lambda c, _: c.submit(submission="b"))
        assert len(world.runner.started) == 1
        assert kinds(world)[0] == "submit"
        assert kinds(world).count("submit") == 1


def with_secrets(world: Deployment, monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """Each launch has a folder with a secret in it, and is noted here."""
    launches: list[Launch] = []

    def launch(order: Order) -> Launch:
        folder = world.folder / "work" / order.token
        folder.mkdir(parents=True)
        (folder / "secrets.conf").write_text("sasl.password=x")
        launches.append(Launch(("spark-submit",), {}, folder, (str(folder / "secrets.conf"),)))
        return launches[-1]

    monkeypatch.setattr(world, "_launch", launch)
    return launches


def test_the_launch_of_the_one_who_comes_second_is_discarded_with_its_secrets(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = with_secrets(world, monkeypatch)
    world.control().submit()
    world.fails(ago=20)
    first, second = world.control("first"), world.control("second")
    seen = second.status()
    first.resume(first.status())
    assert second.resume(seen).token == world.token
    assert [launch.folder.exists() for launch in launches] == [True, True, False]


@pytest.mark.parametrize("where", ["claim", "begin"])
@pytest.mark.parametrize("error", [PermissionError("the storage is away"), KeyboardInterrupt()])
def test_where_no_driver_is_started_no_secret_stays(
    world: Deployment, monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    launches = with_secrets(world, monkeypatch)
    monkeypatch.setattr(*{"claim": (restarts, "claim"), "begin": (intents, "begin")}[where], fails)
    with pytest.raises(type(error)):
        world.control().submit()
    assert [launch.folder.exists() for launch in launches] == [False]


def test_an_interrupted_wait_for_the_one_who_came_first_leaves_no_secret(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    launches = with_secrets(world, monkeypatch)
    restarts.claim(world.files, "submit", "another", None)
    sleep_until(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        world.control().submit()
    assert [launch.folder.exists() for launch in launches] == [False]


def test_one_who_dies_right_after_its_claim_is_waited_for_and_then_replaced(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.control().submit()
    world.fails(ago=20)
    begin = intents.begin

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(intents, "begin", die)
    control = world.control("dies")
    with pytest.raises(KeyboardInterrupt):
        control.resume(control.status())
    monkeypatch.setattr(intents, "begin", begin)
    assert len(world.runner.started) == 1

    clock = [0.0]
    monkeypatch.setattr(control_module.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(control_module.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    control = world.control("the next one")
    assert control.resume(control.status()).token == world.token
    assert clock[0] >= control_module.CLAIM_SECONDS
    assert len(world.runner.started) == 2
    # The attempt that came to nothing counts too, as one that fails at once does.
    assert len(budget(read_history(world.files))) == 2
    assert intent_of(world).token == world.token


def test_of_two_who_find_the_claimant_dead_one_takes_over(world: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    world.control().submit()
    world.fails(ago=20)
    control = world.control("dies")
    monkeypatch.setattr(control, "_start", lambda *_: None)
    control.resume(control.status())
    monkeypatch.setattr(control_module, "CLAIM_SECONDS", 0.5)
    seen = at_once(world, resumes, resumes_too)
    assert len(world.runner.started) == 2
    assert {s.token for s in seen} == {world.token}


def test_one_who_comes_late_to_a_stalled_driver_does_not_kill_the_next(world: Deployment) -> None:
    stalled(world)
    first, second = world.control("first"), world.control("second")
    seen_by_both = second.status()
    first.resume(first.status())
    restarted = world.token
    assert second.resume(seen_by_both).token == restarted
    assert restarted not in world.runner.killed
    assert len(world.runner.started) == 2


def test_one_who_waits_for_the_other_sees_its_driver_as_soon_as_it_is_known(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the claim and the intent nobody can see the driver yet."""
    world.control().submit()
    world.fails(ago=20)
    first, second = world.control("first"), world.control("second")
    late: list[Callable[[], StreamStatus]] = []
    start = first._start

    def hesitate(*arguments: object) -> None:
        late.append(lambda: start(*arguments))  # type: ignore[arg-type]

    monkeypatch.setattr(first, "_start", hesitate)
    first.resume(first.status())
    pauses = sleep_until(monkeypatch, lambda: late.pop()() and None if late else None)
    assert second.resume(second.status()).token == world.token
    assert len(pauses) == 1
    assert len(world.runner.started) == 2
