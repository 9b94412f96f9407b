"""Which ResourceManager of a cluster is asked, and as which user."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import pairwise

import pytest
import requests

from airflow_ckpt.exceptions import RunnerError
from airflow_ckpt.runners.yarn import YarnRunner
from airflow_ckpt.streams.driver_state import ENDED, RUNNING, UNKNOWN
from tests.airflow_ckpt.runners.fake_yarn import HANDLE, TOKEN, Yarn, runner, standby
from tests.airflow_ckpt.runners.fakes import Answer, Server, serving

pytestmark = pytest.mark.unit


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
    with pytest.raises(RunnerError, match="http://resourcemanager:8088"):
        YarnRunner(address)
