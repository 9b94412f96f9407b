"""What the runner of every cluster must do: no answer, and no answer of another server, is ever a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_ckpt.exceptions import RunnerError
from airflow_ckpt.runners.kubernetes import KubernetesRunner
from airflow_ckpt.runners.yarn import APPS, YarnRunner
from airflow_ckpt.streams.driver_state import ENDED, RUNNING, UNKNOWN, VANISHED, Handle
from tests.airflow_ckpt.runners import fake_kubernetes, fake_yarn
from tests.airflow_ckpt.runners.fake_kubernetes import status
from tests.airflow_ckpt.runners.fakes import Answer, Server, serving

pytestmark = pytest.mark.unit

ClusterRunner = YarnRunner | KubernetesRunner


@dataclass
class Service:
    """A cluster's service, a runner that asks it, and one driver in it."""

    server: Server
    cluster: fake_yarn.Yarn | fake_kubernetes.Cluster
    connect: Callable[..., ClusterRunner]
    handle: Handle
    #: What an id that a person knows must have in it.
    id: str
    #: The requests of a kill, before its wait.
    order: list[str]
    #: How an error says that there was no answer.
    silence: str

    def runner(self, **options: Any) -> ClusterRunner:
        return self.connect(self.server, **options)


def on_yarn() -> Iterator[Service]:
    yarn = fake_yarn.Yarn()
    with serving(yarn.answer) as server:
        yield Service(server, yarn, fake_yarn.runner, fake_yarn.HANDLE, fake_yarn.ID, ["PUT"], "time-out")


def on_kubernetes() -> Iterator[Service]:
    cluster = fake_kubernetes.Cluster()
    with serving(cluster.answer) as server:
        yield Service(
            server,
            cluster,
            fake_kubernetes.runner,
            fake_kubernetes.HANDLE,
            fake_kubernetes.NAME,
            ["GET", "DELETE"],
            "Timeout|does not answer",
        )


SERVICES = {"yarn": on_yarn, "kubernetes": on_kubernetes}


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    yield from SERVICES[request.param]()


# --- a look


def test_a_driver_that_the_service_does_not_know_has_vanished_and_is_never_a_success(service: Service) -> None:
    """Airflow's hooks raise for it on every retry, or take it for a success."""
    state = service.runner().look(service.handle)

    assert (state.state, state.exit_code) == (VANISHED, None)
    assert service.id in state.detail


def test_a_404_of_another_web_server_says_nothing_about_the_driver(service: Service) -> None:
    service.server.instead = Answer(404, "<html>nginx: not found</html>")

    state = service.runner().look(service.handle)

    assert state.state == UNKNOWN
    assert "404" in state.detail


@pytest.mark.parametrize(
    ("service", "instead", "reason"),
    [
        ("yarn", Answer(500, "NullPointerException"), "HTTP 500: 'NullPointerException'"),
        ("yarn", Answer(503, "starting"), "HTTP 503"),
        ("yarn", Answer(401, ""), "kinit"),
        ("yarn", Answer(403, ""), "kinit"),
        ("yarn", Answer(400, "bad"), "HTTP 400"),
        ("yarn", Answer(200, "<html>Welcome</html>"), "not answer as a ResourceManager"),
        ("yarn", Answer(200, [1]), "not answer as a ResourceManager"),
        ("yarn", Answer(200, {"other": 1}), "without an application"),
        ("yarn", Answer(302, "", {"Location": "http://sso/login?back=x"}), "redirect to http://sso/login"),
        ("yarn", Answer(200, {"app": fake_yarn.app(state="NAPPING")}), "NAPPING"),
        ("kubernetes", status(401, "Unauthorized"), "kubectl auth can-i"),
        ("kubernetes", status(403, "Forbidden", "pods is forbidden"), "pods is forbidden"),
        ("kubernetes", status(429, "TooManyRequests"), "HTTP 429"),
        ("kubernetes", status(500, "InternalError", "etcd has no leader"), "etcd has no leader"),
        ("kubernetes", Answer(503, "<html>"), "HTTP 503"),
        ("kubernetes", Answer(200, {"kind": "Pod", "spec": {}}), "ValueError"),
    ],
    indirect=["service"],
)
def test_any_other_answer_is_no_verdict(service: Service, instead: Answer, reason: str) -> None:
    service.server.instead = instead

    state = service.runner().look(service.handle)

    assert (state.state, state.exit_code, state.live) == (UNKNOWN, None, False)
    assert reason in state.detail


def test_a_silent_service_is_no_verdict(service: Service) -> None:
    service.server.answers.clear()

    state = service.runner(timeout=0.1).look(service.handle)

    assert state.state == UNKNOWN
    assert any(words in state.detail for words in service.silence.split("|"))


def test_a_service_that_is_down_is_no_verdict(service: Service) -> None:
    with serving(lambda request: Answer()) as server:
        gone = service.connect(server)

    state = gone.look(service.handle)

    assert state.state == UNKNOWN
    assert "does not answer" in state.detail


def test_a_driver_of_another_runner_is_not_asked_for(service: Service) -> None:
    stranger = Handle("process", "4711", service.handle.token)

    assert service.runner().look(stranger).state == UNKNOWN
    with pytest.raises(RunnerError, match=f"'process'.*'{service.handle.kind}'"):
        service.runner().kill(stranger)
    assert service.server.requests == []


# --- found by its token


@pytest.mark.parametrize(
    ("service", "instead"),
    [
        ("yarn", Answer(401)),
        ("yarn", Answer(403)),
        ("yarn", Answer(500)),
        ("yarn", Answer(404, "no page")),
        ("yarn", Answer(200, "text")),
        ("kubernetes", status(401, "Unauthorized")),
        ("kubernetes", status(403, "Forbidden")),
        ("kubernetes", Answer(500)),
        ("kubernetes", Answer(404)),
    ],
    indirect=["service"],
)
def test_without_an_answer_it_is_unknown_whether_there_is_a_driver(service: Service, instead: Answer) -> None:
    service.server.instead = instead

    with pytest.raises(RunnerError, match=f"HTTP {instead.status}|{APPS}"):
        service.runner().find(service.handle.token)


# --- a kill


def test_a_kill_works_after_re_attach(service: Service) -> None:
    """After a reconnect Airflow's hook for YARN kills nothing: it has lost the application's id."""
    service.cluster.add()
    first = service.runner().find(service.handle.token)
    assert first is not None

    assert service.runner().kill(Handle.from_dict(first.as_dict())).state == ENDED
    assert not service.runner().look(service.handle).live


def test_a_kill_of_a_driver_that_the_service_does_not_know_says_so(service: Service) -> None:
    assert service.runner().kill(service.handle).state == VANISHED


def test_a_kill_does_not_wait_without_end(service: Service) -> None:
    service.cluster.obedient = False
    service.cluster.add()

    assert service.runner().kill(service.handle, wait=0.2).state == RUNNING


def test_without_a_wait_only_the_order_is_sent(service: Service) -> None:
    service.cluster.add()

    assert service.runner().kill(service.handle, wait=0).live
    assert [request.method for request in service.server.requests] == service.order
    assert not service.runner().look(service.handle).live


def test_a_kill_that_does_not_arrive_is_an_error(service: Service) -> None:
    service.server.answers.clear()

    with pytest.raises(RunnerError, match=f"{service.id}.*({service.silence})"):
        service.runner(timeout=0.1).kill(service.handle, wait=0)


def test_a_kill_is_ordered_again_while_there_is_time(service: Service) -> None:
    service.cluster.add()
    failing = iter([Answer(503)])
    service.server.handle = lambda request: next(failing, None) or service.cluster.answer(request)

    assert service.runner().kill(service.handle).state == ENDED
