"""Drivers on YARN, against a local server that speaks the ResourceManager's REST API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import requests

from airflow_ckpt.runners.base import (
    ENDED,
    RUNNING,
    UNKNOWN,
    VANISHED,
    WAITING,
    DriverState,
    Handle,
    RunnerError,
    SubmitFailed,
)
from airflow_ckpt.runners.yarn import APPS, YarnRunner
from tests.airflow_ckpt.runners.fakes import Answer, Request, Server, serving, submit

pytestmark = pytest.mark.unit

TOKEN = "0a1b2c"
ID = "application_1700000000000_0001"
HANDLE = Handle("yarn", ID, TOKEN)


def app(number: int = 1, token: str = TOKEN, **fields: Any) -> dict[str, Any]:
    """An application as the ResourceManager of Hadoop 3.4 shows it."""
    return {
        "id": f"application_1700000000000_{number:04}",
        "state": "RUNNING",
        "finalStatus": "UNDEFINED",
        "applicationTags": f"ckpt-{token},spark",
        "trackingUrl": "http://rm:8088/proxy/application_1700000000000_0001/",
        "diagnostics": "",
        "startedTime": 1_700_000_000_000 + number,
        "finishedTime": 0,
        "amContainerLogs": "http://node:8042/node/containerlogs/container_1/spark",
        **fields,
    }


class Yarn:
    """The part of a ResourceManager that we ask."""

    def __init__(self) -> None:
        self.apps: dict[str, dict[str, Any]] = {}
        #: Whether an application ends when it is told to.
        self.obedient = True

    def add(self, *args: Any, **fields: Any) -> None:
        new = app(*args, **fields)
        self.apps[new["id"]] = new

    def answer(self, request: Request) -> Answer:
        if request.method == "POST":
            self.apps[request.body["id"]] = request.body
            return Answer()
        if request.path == APPS:
            # It compares with what it stored, in lower case; without a filter it shows all.
            tag = request.query.get("applicationTags")
            hits = [one for one in self.apps.values() if tag is None or tag in one["applicationTags"].split(",")]
            return Answer(200, {"apps": {"app": hits} if hits else None})
        one = self.apps.get(request.path.removeprefix(f"{APPS}/").removesuffix("/state"))
        if one is None:
            return Answer(404, not_found())
        if request.method == "PUT":
            assert request.path.endswith("/state")
            assert request.body == {"state": "KILLED"}
            if self.obedient:
                one |= {"state": "KILLED", "finalStatus": "KILLED", "diagnostics": "killed by user"}
            return Answer(202, {"state": "RUNNING"})
        return Answer(200, {"app": one})


def not_found() -> dict[str, Any]:
    java = "org.apache.hadoop.yarn.webapp.NotFoundException"
    message = f"java.lang.Exception: app with id: {ID} not found"
    return {"RemoteException": {"exception": "NotFoundException", "message": message, "javaClassName": java}}


def standby(active: str, header: str = "Location") -> Answer:
    """What a standby says. `active` has no query: some versions of Hadoop leave it out."""
    if header == "Refresh":
        return Answer(200, f"This is standby RM. Redirecting to {active}", {"Refresh": f"3; url={active}"})
    return Answer(307, "This is standby RM.", {"Location": active})


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")


@pytest.fixture
def yarn() -> Yarn:
    return Yarn()


@pytest.fixture
def rm(yarn: Yarn) -> Iterator[Server]:
    with serving(yarn.answer) as server:
        yield server


@pytest.fixture
def other() -> Iterator[Server]:
    """A second ResourceManager of the same cluster, on standby."""
    with serving(lambda request: Answer(500)) as server:
        yield server


def runner(*servers: Server, **options: Any) -> YarnRunner:
    return YarnRunner(",".join(server.url for server in servers), **{"timeout": 5.0, "settle": 0.0, **options})


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


def test_an_application_that_yarn_forgot_has_vanished_and_is_never_a_success(rm: Server) -> None:
    """Airflow's hook raises for it on every retry, and never submits again."""
    state = runner(rm).look(HANDLE)

    assert state.state == VANISHED
    assert state.exit_code is None
    assert ID in state.detail


def test_a_404_of_another_web_server_says_nothing_about_the_driver(rm: Server) -> None:
    rm.instead = Answer(404, "<html>nginx: not found</html>")

    state = runner(rm).look(HANDLE)

    assert state.state == UNKNOWN
    assert "is that its address?" in state.detail


@pytest.mark.parametrize(
    ("instead", "reason"),
    [
        (Answer(500, "NullPointerException"), "HTTP 500: 'NullPointerException'"),
        (Answer(503, "starting"), "HTTP 503"),
        (Answer(401, ""), "kinit"),
        (Answer(403, ""), "kinit"),
        (Answer(400, "bad"), "HTTP 400"),
        (Answer(200, "<html>Welcome</html>"), "not answer as a ResourceManager"),
        (Answer(200, [1]), "not answer as a ResourceManager"),
        (Answer(200, {"other": 1}), "without an application"),
        (Answer(302, "", {"Location": "http://sso/login?back=x"}), "redirect to http://sso/login"),
        (Answer(200, {"app": app(state="NAPPING")}), "NAPPING"),
    ],
)
def test_any_other_answer_is_no_verdict(rm: Server, yarn: Yarn, instead: Answer, reason: str) -> None:
    rm.instead = instead

    state = runner(rm).look(HANDLE)

    assert (state.state, state.exit_code, state.live) == (UNKNOWN, None, False)
    assert reason in state.detail


def test_a_silent_resource_manager_is_no_verdict(rm: Server) -> None:
    rm.answers.clear()

    state = runner(rm, timeout=0.1).look(HANDLE)

    assert state.state == UNKNOWN
    assert "time-out" in state.detail


def test_a_resource_manager_that_is_down_is_no_verdict() -> None:
    with serving(lambda request: Answer()) as server:
        down = server.url

    state = YarnRunner(down).look(HANDLE)

    assert state.state == UNKNOWN
    assert f"{down} does not answer: ConnectionError" in state.detail


def test_a_driver_of_another_runner_is_not_asked_for(rm: Server) -> None:
    stranger = Handle("process", "4711", TOKEN)

    assert runner(rm).look(stranger).state == UNKNOWN
    with pytest.raises(RunnerError, match="'process', not of 'yarn'"):
        runner(rm).kill(stranger)
    assert rm.requests == []


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


def test_a_submit_that_fails_before_tells_why(rm: Server, tmp_path: Path) -> None:
    with pytest.raises(SubmitFailed, match="no such queue"):
        runner(rm).start(submit(tmp_path, "sys.exit('no such queue')"), TOKEN)
    assert not (tmp_path / "secret.properties").exists()


def test_a_submit_that_hangs_is_given_up(rm: Server, tmp_path: Path) -> None:
    with pytest.raises(SubmitFailed, match="was killed"):
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


@pytest.mark.parametrize(
    "instead", [Answer(401), Answer(403), Answer(500), Answer(404, "no page"), Answer(200, "text")]
)
def test_nobody_claims_that_there_is_no_driver_without_an_answer(rm: Server, instead: Answer) -> None:
    rm.instead = instead

    with pytest.raises(RunnerError, match=f"HTTP {instead.status}|not answer as"):
        runner(rm).find(TOKEN)


# --- the end


def test_a_killed_application_is_waited_for(rm: Server, yarn: Yarn) -> None:
    yarn.add()

    state = runner(rm).kill(HANDLE)

    assert (state.state, state.exit_code) == (ENDED, 1)
    assert state.detail == "KILLED, final status KILLED: killed by user"


def test_a_kill_works_after_re_attach(rm: Server, yarn: Yarn) -> None:
    """After a reconnect Airflow's hook kills nothing: it has lost the application's id."""
    yarn.add()
    first = runner(rm).find(TOKEN)
    assert first is not None

    state = runner(rm).kill(Handle.from_dict(first.as_dict()))

    assert state.state == ENDED
    assert yarn.apps[ID]["state"] == "KILLED"


def test_a_kill_needs_no_program_on_this_machine(rm: Server, yarn: Yarn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's hook needs the `yarn` command, or curl."""
    monkeypatch.setenv("PATH", "")
    yarn.add()

    assert runner(rm).kill(HANDLE).state == ENDED


def test_a_kill_of_an_application_that_yarn_forgot_says_so(rm: Server) -> None:
    assert runner(rm).kill(HANDLE).state == VANISHED


def test_a_kill_of_one_that_has_ended_tells_how_it_ended(rm: Server, yarn: Yarn) -> None:
    yarn.obedient = False
    yarn.add(state="FINISHED", finalStatus="SUCCEEDED")

    assert runner(rm).kill(HANDLE).exit_code == 0


def test_a_kill_does_not_wait_for_ever(rm: Server, yarn: Yarn) -> None:
    yarn.obedient = False
    yarn.add()

    assert runner(rm).kill(HANDLE, wait=0.2).state == RUNNING


def test_without_a_wait_only_the_order_is_sent(rm: Server, yarn: Yarn) -> None:
    yarn.add()

    state = runner(rm).kill(HANDLE, wait=0)

    assert state.live
    assert [request.method for request in rm.requests] == ["PUT"]
    assert yarn.apps[ID]["state"] == "KILLED"


@pytest.mark.parametrize("status", [401, 403])
def test_a_kill_that_is_refused_names_what_to_do(rm: Server, yarn: Yarn, status: int) -> None:
    """Airflow's hook notes it in the log, and the application runs on."""
    yarn.add()
    rm.instead = Answer(status)

    with pytest.raises(RunnerError, match=rf"HTTP {status}.*requests-kerberos.*kinit.*yarn application -kill {ID}"):
        runner(rm).kill(HANDLE)


@pytest.mark.parametrize("instead", [Answer(404, "no page"), Answer(400, "bad")])
def test_a_kill_that_is_not_understood_is_an_error(rm: Server, instead: Answer) -> None:
    rm.instead = instead

    with pytest.raises(RunnerError, match="was not ended"):
        runner(rm).kill(HANDLE)


def test_a_kill_that_does_not_arrive_is_an_error(rm: Server) -> None:
    rm.answers.clear()

    with pytest.raises(RunnerError, match=f"order to end {ID} did not arrive, it may still run.*time-out"):
        runner(rm, timeout=0.1).kill(HANDLE, wait=0)


def test_a_kill_is_ordered_again_while_there_is_time(rm: Server, yarn: Yarn) -> None:
    yarn.add()
    failing = iter([Answer(503)])
    rm.handle = lambda request: next(failing, None) or yarn.answer(request)

    assert runner(rm).kill(HANDLE).state == ENDED
    assert [request.method for request in rm.requests] == ["PUT", "PUT", "GET"]


# --- several ResourceManagers


@pytest.mark.parametrize("header", ["Location", "Refresh"])
def test_a_standby_leads_to_the_active_one_with_question_and_order(
    rm: Server, other: Server, yarn: Yarn, header: str
) -> None:
    yarn.add(1)
    yarn.add(2, "ffff")
    other.handle = lambda request: standby(rm.url + request.path, header)

    assert runner(other).find(TOKEN) == HANDLE
    assert runner(other).look(HANDLE).state == RUNNING
    assert runner(other).kill(HANDLE).state == ENDED
    assert yarn.apps["application_1700000000000_0002"]["state"] == "RUNNING"


@pytest.mark.parametrize("status", [500, 503])
def test_the_second_is_asked_when_the_first_fails(rm: Server, other: Server, yarn: Yarn, status: int) -> None:
    yarn.add()
    other.instead = Answer(status)

    assert runner(other, rm).look(HANDLE).state == RUNNING


def test_one_that_is_down_is_waited_for_only_once(rm: Server, other: Server, yarn: Yarn) -> None:
    yarn.add()
    other.answers.clear()
    both = runner(other, rm, timeout=0.2)

    assert [both.look(HANDLE).state for _ in range(3)] == [RUNNING] * 3
    assert len(other.requests) == 1


def test_a_failover_is_followed(rm: Server, other: Server, yarn: Yarn) -> None:
    yarn.add()
    both = runner(rm, other)
    assert both.look(HANDLE).state == RUNNING

    rm.handle, other.handle = lambda request: standby(other.url + request.path), yarn.answer

    assert both.look(HANDLE).state == RUNNING


def test_standbys_that_name_each_other_are_no_verdict(rm: Server, other: Server) -> None:
    rm.handle = lambda request: standby(other.url + request.path)
    other.handle = lambda request: standby(rm.url + request.path)

    state = runner(rm, other).look(HANDLE)

    assert state.state == UNKNOWN
    assert len(rm.requests) + len(other.requests) == 2


def test_standbys_that_name_ever_new_ones_are_no_verdict() -> None:
    with ExitStack() as stack:
        chain = [stack.enter_context(serving(lambda request: Answer(500))) for _ in range(10)]
        for here, there in pairwise(chain):
            here.handle = lambda request, there=there: standby(there.url + request.path)

        assert runner(chain[0]).look(HANDLE).state == UNKNOWN
        assert chain[-1].requests == []


def test_a_cluster_without_an_active_one_is_no_verdict(rm: Server) -> None:
    # As Hadoop 3.4 says it: a redirect that leads nowhere, to be repeated.
    rm.handle = lambda request: Answer(307, "no active RM", {"Refresh": f"5;url={rm.url}{request.path}"})

    assert runner(rm).look(HANDLE).state == UNKNOWN
    assert len(rm.requests) == 1


def test_a_login_page_gets_no_credentials(rm: Server, other: Server) -> None:
    rm.handle = lambda request: Answer(302, "", {"Location": f"{other.url}/login"})

    assert runner(rm, auth=("me", "password")).look(HANDLE).state == UNKNOWN
    assert other.requests == []


# --- who we are


def test_the_credentials_go_with_question_and_order_also_to_the_one_that_a_standby_names(
    rm: Server, other: Server, yarn: Yarn
) -> None:
    """On a cluster with Kerberos the kill of Airflow's hook got a 401."""
    yarn.add()
    other.handle = lambda request: standby(rm.url + request.path)

    def ticket(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = "Negotiate ticket"
        return request

    runner(other, auth=ticket).kill(HANDLE)

    assert [(request.method, request.headers["Authorization"]) for request in rm.requests] == [
        ("PUT", "Negotiate ticket"),
        ("GET", "Negotiate ticket"),
    ]


def test_without_kerberos_the_user_is_named(rm: Server, yarn: Yarn) -> None:
    yarn.add()
    runner(rm, user="etl").find(TOKEN)
    runner(rm, user="etl").kill(HANDLE)

    assert {request.query["user.name"] for request in rm.requests} == {"etl"}
    assert rm.requests[0].query["applicationTags"] == f"ckpt-{TOKEN}"


@pytest.mark.parametrize("address", ["", " , ", "rm:8088", "http://a:8088,b:8088", "yarn"])
def test_an_address_that_cannot_work_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(RunnerError, match="must look like http://resourcemanager:8088"):
        YarnRunner(address)


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
    with pytest.raises(RunnerError, match="not the id of a YARN application"):
        runner(rm).kill(handle)
    assert rm.requests == []
