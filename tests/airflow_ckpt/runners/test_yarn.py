"""Drivers on YARN, against a local server that speaks the ResourceManager's REST API."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_ckpt.exceptions import RunnerError, SubmitFailed
from airflow_ckpt.runners.yarn import YarnRunner
from airflow_ckpt.streams.driver_state import ENDED, RUNNING, UNKNOWN, VANISHED, WAITING, DriverState, Handle
from tests.airflow_ckpt.runners.fake_yarn import HANDLE, ID, TOKEN, Yarn, app, runner
from tests.airflow_ckpt.runners.fakes import Answer, Server, submit

pytestmark = pytest.mark.unit


# --- how it is


@pytest.mark.parametrize("name", ["NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED"])
def test_an_application_without_a_driver_yet_waits(rm: Server, yarn: Yarn, name: str) -> None:
    yarn.add(state=name, trackingUrl="", diagnostics="AM is not launched: queue's limit is reached")

    state = runner(rm).look(HANDLE)

    assert (state.state, state.exit_code) == (WAITING, None)
    assert state.detail == f"{name}: AM is not launched: queue's limit is reached"
    assert state.url == f"{rm.url}/cluster/app/{ID}"


@pytest.mark.parametrize("final", ["UNDEFINED", "SUCCEEDED", "FAILED"])
def test_an_application_runs_until_its_state_says_otherwise(rm: Server, yarn: Yarn, final: str) -> None:
    """Airflow's hook reports success for a final status that a driver announces before its end."""
    yarn.add(finalStatus=final)

    assert runner(rm).look(HANDLE) == DriverState(RUNNING, "RUNNING", url=app()["trackingUrl"])


def test_only_finished_and_succeeded_is_a_success(rm: Server, yarn: Yarn) -> None:
    endings = [
        (name, final) for name in ("FINISHED", "FAILED", "KILLED") for final in ("SUCCEEDED", "FAILED", "KILLED")
    ]
    codes = {}
    for name, final in endings:
        yarn.add(state=name, finalStatus=final, diagnostics="because", finishedTime=1_700_000_060_500)
        state = runner(rm).look(HANDLE)
        assert (state.state, state.ended_at) == (ENDED, 1_700_000_060.5)
        assert state.detail == f"{name}, final status {final}: because"
        codes[name, final] = state.exit_code

    assert [ending for ending, code in codes.items() if code == 0] == [("FINISHED", "SUCCEEDED")]
    assert set(codes.values()) == {0, 1}


# --- start and find


def test_the_driver_carries_its_token_and_yarn_never_restarts_it() -> None:
    assert YarnRunner("http://rm:8088").properties("0A1B") == {
        "spark.yarn.tags": "ckpt-0a1b",
        "spark.yarn.submit.waitAppCompletion": "false",
        "spark.yarn.maxAppAttempts": "1",
    }


def test_a_submitted_driver_is_found_by_its_token_and_not_by_what_spark_prints(rm: Server, tmp_path: Path) -> None:
    launch = submit(tmp_path, f"post({rm.url!r}, {app()!r}); print('Submitted application_9_9')")

    handle = runner(rm).start(launch, TOKEN)

    assert (handle.kind, handle.id, handle.token) == ("yarn", ID, TOKEN)
    assert Handle.from_dict(handle.as_dict()) == handle
    assert not (tmp_path / "secret.properties").exists()


def test_a_submit_that_fails_after_the_application_is_there_gives_its_handle(rm: Server, tmp_path: Path) -> None:
    launch = submit(tmp_path, f"post({rm.url!r}, {app()!r}); sys.exit(1)")

    assert runner(rm).start(launch, TOKEN).id == ID
    assert not (tmp_path / "secret.properties").exists()


def test_a_submit_that_fails_before_there_is_an_application_says_why(rm: Server, tmp_path: Path) -> None:
    with pytest.raises(SubmitFailed, match="QueueMissing"):
        runner(rm).start(submit(tmp_path, "sys.exit('QueueMissing')"), TOKEN)
    assert not (tmp_path / "secret.properties").exists()


def test_a_submit_that_hangs_is_given_up(rm: Server, tmp_path: Path) -> None:
    with pytest.raises(SubmitFailed, match=r"0\.2 s"):
        runner(rm, submit_timeout=0.2).start(submit(tmp_path, "time.sleep(60)"), TOKEN)


def test_a_token_finds_its_own_application_only(rm: Server, yarn: Yarn) -> None:
    yarn.add(2, "ffff")
    assert runner(rm).find(TOKEN) is None

    yarn.add(1, state="KILLED")
    assert runner(rm).find(TOKEN) == HANDLE
    assert runner(rm).find(TOKEN.upper()) == Handle("yarn", ID, TOKEN.upper())


def test_of_two_applications_with_one_token_the_living_one_counts(rm: Server, yarn: Yarn) -> None:
    yarn.add(1)
    yarn.add(2, state="FINISHED")

    assert runner(rm).find(TOKEN) == HANDLE


def test_an_answer_that_ignores_the_filter_gives_no_stranger(rm: Server, yarn: Yarn) -> None:
    rm.instead = Answer(200, {"apps": {"app": [app(2, "ffff")]}})

    assert runner(rm).find(TOKEN) is None


def test_an_application_whose_tags_are_hidden_from_us_is_still_found(rm: Server) -> None:
    rm.instead = Answer(200, {"apps": {"app": [app(applicationTags=None)]}})

    assert runner(rm).find(TOKEN) == HANDLE


# --- the log


def test_the_log_is_named_where_it_can_be_read(rm: Server, yarn: Yarn) -> None:
    yarn.add()

    text = runner(rm).log_tail(HANDLE)

    assert text.startswith("see http://node:8042/node/containerlogs/container_1/spark")
    assert f"yarn logs -applicationId {ID}" in text


@pytest.mark.parametrize("instead", [None, Answer(500), Answer(401)])
def test_without_an_answer_the_command_for_the_log_is_named(rm: Server, instead: Answer | None) -> None:
    rm.instead = instead

    assert runner(rm).log_tail(HANDLE) == f"see `yarn logs -applicationId {ID}`"


# --- a handle is noted beside the checkpoint, where others may write


def test_another_application_is_not_taken_for_a_driver_of_ours(rm: Server, yarn: Yarn) -> None:
    yarn.add(2, applicationTags="payroll")

    state = runner(rm).look(Handle("yarn", "application_1700000000000_0002", TOKEN))

    assert state.state == VANISHED


@pytest.mark.parametrize("name", ["../../../cluster/kill", f"{ID}/../application_1_2", f"{ID}?user.name=root", ""])
def test_an_id_that_is_a_path_is_sent_nowhere(rm: Server, name: str) -> None:
    handle = Handle("yarn", name, TOKEN)

    assert runner(rm).look(handle).state == UNKNOWN
    with pytest.raises(RunnerError, match=re.escape(repr(name))):
        runner(rm).kill(handle)
    assert rm.requests == []
