"""The example DAGs as files: their forms, their retries, and what the watchdog tells whom."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError
from jinja2.sandbox import SandboxedEnvironment

from airflow_ckpt.examples import fill_topic
from airflow_ckpt.hooks.stream import StreamHook
from airflow_ckpt.streams.observation import Observation
from airflow_ckpt.streams.preflight import PreflightFinding
from airflow_ckpt.streams.status import StreamStatus
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.supervision.observing import LookBeforeStart
from ckpt_stream.protocol.settings.setting import Group, settings_of
from tests.airflow_ckpt.supervision.samples import a_status, a_stream

pytestmark = pytest.mark.unit

DAGS = Path(__file__).parents[2] / "dags"
NAMES = sorted(path.stem for path in DAGS.glob("*.py") if path.stem not in ("forms", "streams"))


@pytest.fixture
def alerts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The DAGs' folder can be imported from, as in Airflow; a web hook is declared."""
    monkeypatch.syspath_prepend(str(DAGS))
    monkeypatch.setenv("CKPT_ALERTS", "chat pager")
    yield
    for shared in ("forms", "streams"):
        sys.modules.pop(shared, None)


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", DAGS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_five() -> None:
    assert NAMES == [
        "crash_drill",
        "drain_and_verify",
        "ip_count_exactly_once",
        "stream_watchdog",
        "word_count_restore",
    ]


@pytest.mark.usefixtures("alerts")
@pytest.mark.parametrize("name", NAMES)
def test_every_dag_has_a_form_that_explains_itself_and_may_be_sent_as_it_comes(name: str) -> None:
    params = load(name).dag.params
    assert len(params)
    params.validate()
    for key in params:
        param = params.get_param(key)
        assert param.description, f"{name}: {key} has no description"
        assert param.schema.get("type"), f"{name}: {key} has no type"


@pytest.mark.usefixtures("alerts")
def test_a_field_for_a_setting_is_in_its_group_and_described_by_the_setting() -> None:
    params = load("ip_count_exactly_once").dag.params
    shared = {"name", "source", "sink", "guarantee"}
    settings = {"trigger_seconds": "trigger_interval", "max_offsets": "max_offsets_per_batch", **{n: n for n in shared}}
    for key, name in settings.items():
        known, param = settings_of(Stream)[name], params.get_param(key)
        assert param.schema["section"] == known.group.value
        assert (param.description or "").startswith(load("forms").plain_text(known.about))


@pytest.mark.usefixtures("alerts")
@pytest.mark.parametrize("name", ["crash_drill", "drain_and_verify", "ip_count_exactly_once"])
def test_the_sections_of_a_form_with_settings_are_their_groups_and_two_more(name: str) -> None:
    params = load(name).dag.params
    sections = list(dict.fromkeys(params.get_param(key).schema["section"] for key in params))
    groups = [group.value for group in Group]
    assert set(sections) <= {*groups, "Checks", "Fire drill"}
    found = [section for section in sections if section in groups]
    assert found == sorted(found, key=groups.index)


@pytest.mark.usefixtures("alerts")
@pytest.mark.parametrize("name", NAMES)
def test_the_descriptions_of_a_form_are_plain_text(name: str) -> None:
    """Airflow's form shows them as they are written, and opens no link."""
    params = load(name).dag.params
    descriptions = {key: params.get_param(key).description or "" for key in params}
    assert {key: text for key, text in descriptions.items() if re.search(r"`|\]\(|; see ", text)} == {}


@pytest.mark.usefixtures("alerts")
def test_a_link_within_the_description_of_a_setting_keeps_its_words() -> None:
    assert "; see [lanes](" in settings_of(Stream)["lanes"].about
    plain = load("forms").plain_text
    assert plain(settings_of(Stream)["lanes"].about) == "Transactions per batch."
    assert plain("the [time](a.md) of `x`") == "The time of x."


@pytest.mark.usefixtures("alerts")
@pytest.mark.parametrize("name", NAMES)
def test_a_fault_of_airflow_is_tried_again(name: str) -> None:
    assert {task.retries for task in load(name).dag.tasks} == {2}


class Producer(list[str]):
    """Kafka, as far as the two tasks that send something see it."""

    def produce(self, topic: str, value: str, key: str | None, **_: Any) -> None:
        self.append(value)

    def poll(self, seconds: float) -> None:
        pass

    def flush(self, seconds: float) -> int:
        return 0


@pytest.mark.usefixtures("alerts")
@pytest.mark.parametrize(
    ("name", "task", "params", "sent"),
    [
        ("word_count_restore", "send_words", {"words": "a b ERROR c"}, ["a", "b", "ERROR", "c"]),
        ("crash_drill", "create_input", {"point": "mid_produce", "lanes": 1, "records": 4}, ["0", "1", "2", "3"]),
    ],
)
@pytest.mark.parametrize("there", [0, 3, 4])
def test_a_second_try_sends_only_what_the_first_has_not(
    monkeypatch: pytest.MonkeyPatch, name: str, task: str, params: dict[str, Any], sent: list[str], there: int
) -> None:
    module, producer = load(name), Producer()
    admin = SimpleNamespace(create_topic=lambda topics: None, get_conn=None)
    monkeypatch.setattr(module, "KafkaAdminClientHook", lambda conn_id: admin)
    monkeypatch.setattr(module, "KafkaProducerHook", lambda conn_id: SimpleNamespace(get_producer=lambda: producer))
    monkeypatch.setattr(fill_topic, "records_in", lambda admin, topic: there)
    module.dag.get_task(task).python_callable("source", "sink", params=params)
    assert producer == sent[there:]


@pytest.mark.usefixtures("alerts")
@pytest.mark.parametrize(
    ("words", "good"),
    [
        ("a ERROR ERROR b ERROR ERROR", True),
        ("ERROR ERROR ERROR ERROR", True),
        ("a ERROR ERROR b ERROR", False),
        ("ERROR ERROR ERROR xERROR ERRORs", False),
    ],
)
def test_the_words_must_hold_four_errors(words: str, good: bool) -> None:
    params = load("word_count_restore").dag.params
    with nullcontext() if good else pytest.raises(ParamValidationError):
        params["words"] = words


@pytest.mark.usefixtures("alerts")
def test_the_table_of_the_words_is_the_described_one() -> None:
    module = load("word_count_restore")
    words = module.dag.params["words"].split()
    expected = [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("a", 3), ("a", 4), ("b", 3)]
    assert module.table(words) == expected
    # The fourth failure is final: nothing behind it is counted.
    assert module.table([*words, "a", "b"]) == expected


@pytest.mark.usefixtures("alerts")
def test_the_main_form_as_it_comes_is_the_declared_stream() -> None:
    """Else the watchdog would resume a stream with other settings than it was started with."""
    module = load("ip_count_exactly_once")
    context = {"params": module.dag.params.dump()}
    rendered = module.submit.render_template(module.stream, context, SandboxedEnvironment())
    declared, sent = module.ip_count.as_dict(), rendered.as_dict()
    assert sent.pop("env") == {"CKPT_CRASH": ""}
    assert sent == declared


@pytest.mark.usefixtures("alerts")
@pytest.mark.parametrize(
    ("param", "value", "good"),
    [
        ("name", "orders", True),
        ("name", "..", False),
        ("name", ".", False),
        ("name", "a/b", False),
        ("crash", "", True),
        ("crash", None, True),
        ("crash", '{"point": "mid_produce"}', True),
        ("crash", "mid_produce", False),
    ],
)
def test_the_main_form_refuses_what_cannot_work(param: str, value: str | None, good: bool) -> None:
    params = load("ip_count_exactly_once").dag.params
    with nullcontext() if good else pytest.raises(ParamValidationError):
        params[param] = value


@pytest.mark.usefixtures("alerts")
def test_a_run_is_as_good_as_its_last_verification_and_stops_its_stream_whatever_that_says() -> None:
    dag = load("ip_count_exactly_once").dag
    assert {task.task_id for task in dag.leaves} == {"verified", "stop"}
    assert dag.get_task("verified").trigger_rule == "one_success"
    assert dag.get_task("stop_wanted").trigger_rule == "all_done"
    for task in ("verified", "stop_wanted"):
        assert dag.get_task(task).upstream_task_ids == {"verify", "verify_again"}


@pytest.mark.usefixtures("alerts")
@pytest.mark.parametrize(("verdict", "since"), [(None, "last"), ({"since": 7}, "7"), ({"since": 0}, "0")])
def test_the_second_verification_covers_what_the_first_one_did(verdict: dict[str, int] | None, since: str) -> None:
    again = load("ip_count_exactly_once").dag.get_task("verify_again")

    def pull(*, task_ids: str, key: str) -> dict[str, int] | None:
        assert (task_ids, key) == ("verify", "verdict")
        return verdict

    context = {"params": {"since": "last"}, "ti": SimpleNamespace(xcom_pull=pull)}
    assert again.render_template(again.since, context, SandboxedEnvironment()) == since


@pytest.mark.usefixtures("alerts")
def test_a_stream_that_a_user_stopped_is_not_started() -> None:
    assert load("ip_count_exactly_once").dag.get_task("catch_up").start is False


@pytest.mark.usefixtures("alerts")
def test_a_batch_number_is_one_streams() -> None:
    look = load("stream_watchdog").dag.get_task("ip_count.status").python_callable
    with pytest.raises(AirflowFailException, match=r"choose\b.*\bstream"):
        look(params={"stream": "all", "max_lag_minutes": 1, "since": "7"}, ti=None)


@pytest.mark.usefixtures("alerts")
@pytest.mark.parametrize("there", [{"a_source", "a_sink", "_ckpt_ledger_a_sink"}, {"a_sink"}, set()])
def test_a_drill_that_is_cleaned_up_a_second_time_finds_what_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: set[str]
) -> None:
    module, deleted = load("crash_drill"), set[str]()
    conn = SimpleNamespace(list_topics=lambda timeout: SimpleNamespace(topics=there))
    admin = SimpleNamespace(get_conn=conn, delete_topic=deleted.update)
    monkeypatch.setattr(module, "KafkaAdminClientHook", lambda conn_id: admin)
    monkeypatch.setattr(module, "ledger_topic", lambda sink_id: "_ckpt_ledger_a_sink")
    scratch = a_stream(source="a_source", sink="a_sink").as_dict()
    module.dag.get_task("clean_up").python_callable(scratch, str(tmp_path / "hit"))
    assert deleted == there


@pytest.mark.usefixtures("alerts")
def test_a_crash_point_between_lanes_is_refused_where_there_is_one_lane() -> None:
    create_input = load("crash_drill").dag.get_task("create_input").python_callable
    with pytest.raises(AirflowFailException, match="between_lanes"):
        create_input("source", "sink", params={"point": "between_lanes", "lanes": 1, "records": 30})


@pytest.mark.usefixtures("alerts")
def test_the_watchdog_tells_of_every_task_that_fails() -> None:
    module = load("stream_watchdog")
    for task in module.dag.tasks:
        assert [told.http_conn_id for told in task.on_failure_callback] == ["chat", "pager"]


@pytest.mark.usefixtures("alerts")
@pytest.mark.parametrize("name", ["ip_count", "word_count"])
def test_one_stream_does_not_keep_the_watchdog_from_the_others(name: str) -> None:
    dag = load("stream_watchdog").dag
    resume = dag.get_task(f"{name}.resume")
    assert (resume.restarts, resume.timeout) == (1, timedelta(minutes=10))
    # And a stream that cannot be resumed is verified all the same; both count for the run's state.
    assert resume.downstream_task_ids == dag.get_task(f"{name}.verify").downstream_task_ids == set()


class Watched:
    """A stream as the watchdog sees it."""

    def __init__(self, status: StreamStatus, *risks: PreflightFinding) -> None:
        self.found, self.findings = status, list(risks)

    def look_before_start(self, *, lag_seconds: bool = False) -> LookBeforeStart:
        assert lag_seconds
        return LookBeforeStart(Observation(datetime.now(UTC)), self.found)

    def risks(self, look: LookBeforeStart) -> list[PreflightFinding]:
        return self.findings


SOON = PreflightFinding("data_soon_lost", "retention passes soon.", "It is lost.", "resume now.", unsafe=False)


@pytest.mark.usefixtures("alerts")
@pytest.mark.parametrize(
    ("stream", "form", "goes_on", "told"),
    [
        (Watched(a_status("RUNNING", lag_seconds=60.0)), {}, True, []),
        (Watched(a_status("RUNNING", lag_seconds=61.0)), {}, True, ["too far behind"]),
        (Watched(a_status("FAILED"), SOON), {}, True, ["data_soon_lost"]),
        (Watched(a_status("RUNNING", lag_seconds=61.0), SOON), {}, True, ["data_soon_lost", "too far behind"]),
        (Watched(a_status("NEW"), SOON), {}, False, []),
        # It was stopped on purpose, so that its lag is expected.
        (Watched(a_status("STOPPED", lag_seconds=61.0)), {}, True, []),
        (Watched(a_status("LOST", lag_seconds=61.0)), {}, True, ["too far behind"]),
        (Watched(a_status("RUNNING", lag_seconds=61.0), SOON), {"stream": "word_count"}, False, []),
        (Watched(a_status("RUNNING", lag_seconds=61.0)), {"stream": "ip_count"}, True, ["too far behind"]),
    ],
)
def test_the_watchdog_alerts_to_what_is_at_risk(
    monkeypatch: pytest.MonkeyPatch, stream: Watched, form: dict[str, str], goes_on: bool, told: list[str]
) -> None:
    module = load("stream_watchdog")
    assert [notifier.http_conn_id for notifier in module.ALERTS] == ["chat", "pager"]
    for task in ("resume", "verify"):
        assert module.dag.get_task(f"ip_count.{task}").notify == module.ALERTS
    alerts: list[Any] = []
    monkeypatch.setattr(module, "ALERTS", [lambda context: alerts.append(context["ckpt"])])
    monkeypatch.setattr(StreamHook, "get_conn", lambda self: stream)
    look = module.dag.get_task("ip_count.status").python_callable

    assert look(params={"stream": "all", "since": "last", "max_lag_minutes": 1, **form}, ti=None) is goes_on

    assert [alert["reason"].partition(":")[0] for alert in alerts] == told
    assert {(alert["event"], alert["stream"]) for alert in alerts} == ({("at_risk", "ip_count")} if told else set())
