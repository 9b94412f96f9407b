"""Drivers on YARN are killed through the ResourceManager, and their end is waited for."""

from __future__ import annotations

import pytest

from airflow_ckpt.exceptions import RunnerError
from airflow_ckpt.streams.driver_state import ENDED
from tests.airflow_ckpt.runners.fake_yarn import HANDLE, ID, Yarn, runner
from tests.airflow_ckpt.runners.fakes import Answer, Server

pytestmark = pytest.mark.unit


def test_a_killed_application_is_waited_for(rm: Server, yarn: Yarn) -> None:
    yarn.add()

    state = runner(rm).kill(HANDLE)

    assert (state.state, state.exit_code) == (ENDED, 1)
    assert state.detail == "KILLED, final status KILLED: killed by user"


def test_a_kill_needs_no_program_on_this_machine(rm: Server, yarn: Yarn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's hook needs the `yarn` command, or curl."""
    monkeypatch.setenv("PATH", "")
    yarn.add()

    assert runner(rm).kill(HANDLE).state == ENDED


def test_a_kill_of_one_that_has_ended_says_how_it_ended(rm: Server, yarn: Yarn) -> None:
    yarn.obedient = False
    yarn.add(state="FINISHED", finalStatus="SUCCEEDED")

    assert runner(rm).kill(HANDLE).exit_code == 0


@pytest.mark.parametrize("status", [401, 403])
def test_a_kill_that_is_refused_names_what_to_do(rm: Server, yarn: Yarn, status: int) -> None:
    """Airflow's hook only logs it, and the application runs on."""
    yarn.add()
    rm.instead = Answer(status)

    with pytest.raises(RunnerError, match=rf"HTTP {status}.*requests-kerberos.*kinit.*yarn application -kill {ID}"):
        runner(rm).kill(HANDLE)


@pytest.mark.parametrize("instead", [Answer(404, "no page"), Answer(400, "bad")])
def test_a_kill_that_is_not_understood_is_an_error(rm: Server, instead: Answer) -> None:
    rm.instead = instead

    with pytest.raises(RunnerError, match=f"{ID}.*{instead.status}"):
        runner(rm).kill(HANDLE)


def test_a_kill_is_ordered_again_while_there_is_time(rm: Server, yarn: Yarn) -> None:
    yarn.add()
    failing = iter([Answer(503)])
    rm.handle = lambda request: next(failing, None) or yarn.answer(request)

    assert runner(rm).kill(HANDLE).state == ENDED
    assert [request.method for request in rm.requests] == ["PUT", "PUT", "GET"]
