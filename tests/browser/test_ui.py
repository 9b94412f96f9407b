"""The main DAG as a person meets it: its form, its run, the link to Spark and the verdict, in a real browser."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.demo.access_log import AccessLog
from airflow_ckpt.local.processes.ports import free_port
from ckpt_stream.protocol.settings.setting import Group
from tests.browser.ui import AirflowUi, TriggerForm, open_browser
from tests.fixtures.kafka import ExternalKafka
from tests.support.breakable_airflow import BreakableAirflow
from tests.support.breakable_kafka import BreakableKafka
from tests.support.dag_runs import task_log
from tests.support.running import running

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(900)]

# Beside this folder is the one with the applications, where the DAGs' streams look for theirs.
DAGS = Path(__file__).parents[2] / "dags"
DAG = "ip_count_exactly_once"
# A minute on two idle cores, most of which is Spark's.
RUN_SECONDS = 600


@pytest.fixture(scope="module")
def airflow(
    kafka: BreakableKafka | ExternalKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BreakableAirflow]:
    """A running Airflow with the example DAGs. Its stop also ends the drivers that tasks have started."""
    home = tmp_path_factory.mktemp("airflow") / "home"
    with running(BreakableAirflow(home, dags=DAGS, port=free_port(), kafka_config=kafka.client_config())) as standalone:
        standalone.api.wait_for_dag(DAG, deadline_s=120)
        yield standalone


@pytest.fixture
def ui(airflow: BreakableAirflow) -> Iterator[AirflowUi]:
    """A browser whose user has logged in."""
    with open_browser(airflow.url) as browser:
        browser.log_in(airflow.username, airflow.password)
        yield browser


def test_without_a_browser_the_failure_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with (
        pytest.raises(FileNotFoundError, match="apt-get install chromium chromium-driver"),
        open_browser("http://127.0.0.1:1"),
    ):
        pass


def test_the_form_explains_every_field_and_can_be_sent_as_it_comes(airflow: BreakableAirflow, ui: AirflowUi) -> None:
    form = ui.open_trigger_form(DAG)

    for section, fields in declared(airflow).items():
        form.open_section(section)
        shown = form.explanations()
        assert {title: shown.get(title) for title in fields} == fields
        assert all(fields.values()), f"a param of section {section} has no description"
    assert form.can_be_sent()


def test_a_stream_is_started_through_the_form_and_seen_to_be_exactly_once(
    airflow: BreakableAirflow, ui: AirflowUi, kafka: BreakableKafka | ExternalKafka, topics: Callable[..., str]
) -> None:
    name = run = f"browser-{uuid.uuid4().hex[:8]}"
    source, sink = topics("source", partitions=2), topics("sink", partitions=2)
    log = AccessLog(kafka.client_config(), (source,), seconds=1, rate=1000)
    log.run()
    assert log.error is None

    form = ui.open_trigger_form(DAG)
    # The first batch reads all lines, the second one writes the windows that they have closed.
    wanted = {"name": name, "source": source, "sink": sink, "batches": 2, "stop_afterwards": True}
    fill_in(form, wanted)
    form.name_the_run(run)
    form.submit()

    conf = ui.wait_for(lambda: started(airflow, run), "the run that the form has started")
    assert {key: conf[key] for key in wanted} == wanted
    ui.open_run(DAG, run)
    assert ui.wait_for_state("success", "failed", seconds=RUN_SECONDS) == "success", failures(airflow, run)

    ui.open_task(DAG, run, "submit", "details")
    assert ui.extra_link("Spark UI").startswith("http://")

    ui.open_task(DAG, run, "verify", "xcom")
    verdict = ui.xcom("verdict")
    assert '"verdict": "clean"' in verdict
    assert f'"sink_committed": {len(log.expected)}' in verdict

    ui.open_task(DAG, run, "stop")
    assert ui.wait_for_state("success", "skipped") == "success"


def declared(airflow: BreakableAirflow) -> dict[str, dict[str, str | None]]:
    """By section of the form: the title and the description of each param, as the DAG has them."""
    params: dict[str, Any] = airflow.api("GET", f"/dags/{DAG}/details")["params"]
    found: dict[str, dict[str, str | None]] = {}
    for name, param in params.items():
        schema = param["schema"]
        found.setdefault(schema["section"], {})[schema.get("title", name)] = param["description"]
    return found


def fill_in(form: TriggerForm, wanted: dict[str, Any]) -> None:
    for section, field in ((Group.STREAM, "name"), (Group.SOURCE, "source"), (Group.SINK, "sink")):
        form.open_section(section.value)
        form.fill_in(field, wanted[field])
    form.open_section("Checks")
    form.fill_in("batches", wanted["batches"])
    form.switch_on("stop_afterwards")


def started(airflow: BreakableAirflow, run: str) -> dict[str, Any]:
    """What a run was given, once it is there and may begin: the form also unpauses the DAG."""
    runs = {found["dag_run_id"]: found["conf"] for found in airflow.api("GET", f"/dags/{DAG}/dagRuns")["dag_runs"]}
    return {} if airflow.api("GET", f"/dags/{DAG}")["is_paused"] else runs.get(run, {})


def failures(airflow: BreakableAirflow, run: str) -> str:
    """The states of the run's tasks, and the end of the log of each that failed."""
    states = airflow.api.task_states(DAG, run)
    failed = [task for task, state in states.items() if state == "failed"]
    return "\n".join([str(states), *(task_log(airflow.api, DAG, run, task)[-3000:] for task in failed)])
