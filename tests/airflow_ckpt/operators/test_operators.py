"""What all operators share: arguments, ends, what people see, secrets, and the way of a DAG to the scheduler."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.bases.notifier import BaseNotifier
from airflow.sdk.exceptions import AirflowFailException
from airflow.serialization.serialized_objects import DagSerialization

from airflow_ckpt.exceptions import CkptError, GivenUp
from airflow_ckpt.links.spark_ui import SparkUiLink, XCom
from airflow_ckpt.notifications import events as events_module
from airflow_ckpt.operators.base import StreamOperator
from airflow_ckpt.operators.publishing import HISTORY_KEY, STATUS_KEY
from airflow_ckpt.operators.resume import SparkStreamResumeOperator
from airflow_ckpt.operators.stop import SparkStreamStopOperator
from airflow_ckpt.operators.submit import SparkStreamSubmitOperator
from airflow_ckpt.operators.supervise import SparkStreamSuperviseOperator
from airflow_ckpt.operators.verify import ExactlyOnceVerifyOperator
from airflow_ckpt.sensors.progress import CheckpointProgressSensor
from airflow_ckpt.streams.driver_state import Handle
from airflow_ckpt.streams.goal import Outcome
from airflow_ckpt.streams.restart_strategies import FixedDelay
from ckpt_stream.protocol.verification.consistent_cut import BatchRange
from tests.airflow_ckpt.operators.fakes import NOW, FakeControl, Play, a_context, deferred, make
from tests.airflow_ckpt.supervision.samples import a_status, a_stream

pytestmark = pytest.mark.unit


# --- bad arguments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        (SparkStreamSubmitOperator, {"stream": "orders"}, "Stream.* str"),
        (SparkStreamSubmitOperator, {"wait_for": "ever"}, "nothing, started, first_batch"),
        (SparkStreamSubmitOperator, {"on_kill_action": "panic"}, "leave, stop, kill"),
        (SparkStreamSubmitOperator, {"timeout": "soon"}, "timeout"),
        (SparkStreamSuperviseOperator, {"until": "drayned"}, "drained"),
        (SparkStreamSuperviseOperator, {"when_done": "kill"}, "leave, stop"),
        (SparkStreamStopOperator, {"kill_after": "soon"}, "kill_after"),
        (ExactlyOnceVerifyOperator, {"depth": "deep"}, "ledger, sink, recompute"),
        (ExactlyOnceVerifyOperator, {"since": "yesterday"}, "since=.*last.*start"),
        (SparkStreamResumeOperator, {"restarts": 0}, "restarts=0"),
    ],
)
def test_bad_arguments_are_refused_when_the_dag_is_parsed(kind: Any, values: dict[str, Any], words: str) -> None:
    with pytest.raises(CkptError, match=words):
        make(kind, **values)


@pytest.mark.parametrize(
    ("name", "rendered", "words"),
    [
        ("depth", "deep", "ledger, sink, recompute"),
        ("since", "yesterday", "since=.*last.*start"),
        ("since", "{{ never rendered }}", "since=.*never rendered"),
    ],
)
def test_a_form_that_asks_for_what_there_is_not_is_refused_when_the_task_runs(
    play: Play, name: str, rendered: str, words: str
) -> None:
    play("RUNNING")
    operator = make(ExactlyOnceVerifyOperator, **{name: "{{ params.wish }}"})
    setattr(operator, name, rendered)
    with pytest.raises(CkptError, match=words):
        operator.execute(a_context())


def test_where_a_verification_begins_can_come_from_a_form(play: Play) -> None:
    operator = make(ExactlyOnceVerifyOperator, since="{{ params.wish }}")
    for text, after in (("7", 6), ("0", None), ("start", None)):
        operator.since = text
        operator._check()
        assert operator._range(None) == BatchRange(after)


@pytest.mark.parametrize(("verdict", "said"), [("violated", "violated"), ("unknown", "unverified")])
def test_a_verdict_that_is_not_clean_is_told_and_counted_once(
    monkeypatch: pytest.MonkeyPatch, verdict: str, said: str
) -> None:
    told, counted = [], []
    monkeypatch.setattr(events_module, "count", lambda event, stream: counted.append((event, stream)))
    operator = make(ExactlyOnceVerifyOperator, notify=lambda c: told.append(c["ckpt"]["event"]))
    with pytest.raises(AirflowFailException, match=f"{verdict}.*DoubledRecord"):
        operator._act_on(a_context(), verdict, {"findings": [{"what": "DoubledRecord"}]})
    assert (told, counted) == ([said], [(said, "orders")])


# --- ended by hand -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "did"), [("leave", []), ("stop", [("stop", "the Airflow task was ended")]), ("kill", [("kill", 0)])]
)
def test_a_task_that_is_ended_does_to_the_stream_what_it_was_told(play: Play, action: str, did: Any) -> None:
    control = play("RUNNING")
    operator = make(SparkStreamSubmitOperator, on_kill_action=action, wait_for="nothing")
    operator.execute(a_context())
    control.did.clear()
    operator.on_kill()
    assert control.did == did


def test_a_task_that_is_ended_before_it_began_does_nothing(play: Play) -> None:
    control = play("RUNNING")
    make(SparkStreamSubmitOperator, on_kill_action="kill").on_kill()
    assert control.did == []


def job_of(control: FakeControl, outcome: str) -> dict[str, Any]:
    """A verification's job that is looked at once, and then so."""
    handle = Handle("process", "id", "token", {})
    control.start_job = lambda order: handle  # type: ignore[attr-defined]
    control.runner = SimpleNamespace(log_tail=lambda handle, lines: "its last line")  # type: ignore[attr-defined]
    control.access = SimpleNamespace(kafka={"bootstrap.servers": "k:1"}, files=SimpleNamespace(read=lambda _: None))  # type: ignore[attr-defined]
    control.look_at_job = lambda *_: Outcome(outcome, "the job is RUNNING, and was not over in time")  # type: ignore[attr-defined]
    return handle.as_dict()


def test_a_job_that_is_not_over_in_time_does_not_go_on_beside_the_next_one(play: Play) -> None:
    control = play("RUNNING")
    job_of(control, "timeout")
    with pytest.raises(CkptError) as failed:
        make(ExactlyOnceVerifyOperator, depth="recompute").execute(a_context())
    assert failed.value.kind == "no_result"
    assert control.did == [("end_job", "token")]


def test_a_verification_that_is_ended_ends_its_job_and_leaves_the_stream(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = play("RUNNING")
    job_of(control, "waiting")
    operator = make(ExactlyOnceVerifyOperator, depth="recompute")

    def interrupt(_: float) -> None:
        operator.on_kill()
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        operator.execute(a_context())
    assert control.did == [("end_job", "token")]


# --- what people see ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noted", "linked"),
    [
        ("http://driver:4040", "http://driver:4040"),
        ("https://d/x", "https://d/x"),
        ("javascript:alert(1)", ""),
        (None, ""),
    ],
)
def test_the_button_opens_pages_and_runs_no_script_that_a_run_record_names(
    monkeypatch: pytest.MonkeyPatch, noted: str | None, linked: str
) -> None:
    monkeypatch.setattr(XCom, "get_value", lambda **_: noted)
    assert SparkUiLink().get_link(None, ti_key=None) == linked  # type: ignore[arg-type]


def test_the_spark_ui_is_linked_as_soon_as_it_is_known(play: Play) -> None:
    play("STARTING", a_status("RUNNING", ui="http://driver:4040"))
    context = a_context()
    make(SparkStreamSubmitOperator).execute(context)
    assert context["ti"].pushed == {"spark_ui": "http://driver:4040"}


def test_the_states_of_the_stream_are_kept_in_the_task_state_store(play: Play) -> None:
    play("STARTING", a_status("RUNNING", batch=3))
    context = a_context()
    make(SparkStreamSubmitOperator).execute(context)
    store = context["task_state_store"]
    assert [entry["state"] for entry in store[HISTORY_KEY]] == ["STARTING", "RUNNING"]
    assert (store[STATUS_KEY]["state"], store[STATUS_KEY]["batch"]) == ("RUNNING", 3)
    assert json.dumps(store)


def test_an_event_of_the_streams_asset_carries_batch_and_offsets(play: Play) -> None:
    play("STARTING", a_status("RUNNING", batch=3, offsets={"orders_in": {"0": 7}}))
    context = a_context()
    operator = make(SparkStreamSubmitOperator)
    operator.execute(context)
    [outlet] = operator.outlets
    extra = context["outlet_events"][outlet].extra
    assert (extra["batch"], extra["offsets"], extra["state"]) == (3, {"orders_in": {"0": 7}}, "RUNNING")


def test_a_context_without_store_and_events_will_do(play: Play) -> None:
    play("RUNNING")
    context = a_context()
    assert make(SparkStreamSubmitOperator).execute({"ti": context["ti"]})["state"] == "RUNNING"


def test_a_notifier_that_fails_changes_nothing_and_the_next_one_is_called(play: Play) -> None:
    play(a_status("FAILED", batch=7), a_status("FAILED", batch=7), a_status("RUNNING", batch=8), plans=[NOW])
    told: list[str] = []

    def broken(context: Any) -> None:
        raise OSError("the chat is away")

    operator = make(SparkStreamResumeOperator, notify=[broken, lambda c: told.append(c["ckpt"]["event"])])
    assert operator.execute(a_context())["resumed"]
    assert told == ["failed", "resumed"]


class Chat(BaseNotifier):
    """Keeps what it would have posted."""

    template_fields = ("text",)

    def __init__(self, posts: list[str]) -> None:
        super().__init__()
        self.text, self.posts = "{{ ckpt.stream }} {{ ckpt.event }}: {{ ckpt.reason }}", posts

    def notify(self, context: Any) -> None:
        self.posts.append(self.text)


def test_a_notifier_says_of_each_event_its_own_words(play: Play) -> None:
    """Airflow's notifiers render their templates in place, once for all."""
    play("FAILED", plans=[NOW, NOW, GivenUp("all used")])
    posts: list[str] = []
    with pytest.raises(AirflowFailException):
        make(SparkStreamSuperviseOperator, notify=Chat(posts)).execute(a_context())
    assert [post.partition(":")[0] for post in posts] == [
        "orders failed",
        "orders resumed",
        "orders failed",
        "orders given_up",
    ]


# --- secrets -----------------------------------------------------------------------------------------------------------


def test_what_is_deferred_names_connections_and_holds_no_secrets(monkeypatch: pytest.MonkeyPatch, play: Play) -> None:
    play("STARTING")
    stream = a_stream(kafka_conn_id="kafka_prod", checkpoint_conn_id="store")
    trigger = deferred(lambda: make(SparkStreamSubmitOperator, stream=stream, deferrable=True).execute(a_context()))
    text = json.dumps(trigger.serialize())
    assert "kafka_prod" in text
    assert "store" in text
    assert not [word for word in ("password", "secret", "jaas", "bootstrap") if word in text]


# --- DAGs --------------------------------------------------------------------------------------------------------------


OPERATORS: list[tuple[type[StreamOperator], dict[str, Any]]] = [
    (SparkStreamSubmitOperator, {"wait_for": "first_batch", "notify": print}),
    (SparkStreamResumeOperator, {"allow": ["data_lost"]}),
    (SparkStreamSuperviseOperator, {"until": timedelta(hours=1)}),
    (SparkStreamStopOperator, {"kill_after": "1 minute"}),
    (CheckpointProgressSensor, {"batches": "{{ params.n }}"}),
    (ExactlyOnceVerifyOperator, {}),
]


@pytest.mark.parametrize(("kind", "values"), OPERATORS)
def test_a_dag_with_the_operator_survives_the_way_to_the_scheduler(kind: Any, values: dict[str, Any]) -> None:
    stream = a_stream(restart=FixedDelay(3, timedelta(seconds=10)), checkpoint="file:///data/{{ params.x }}")
    with DAG("dag", schedule=None) as dag:
        kind(task_id="task", stream=stream, deferrable=True, timeout=timedelta(minutes=1), **values)
    document = json.loads(json.dumps(DagSerialization.to_dict(dag)))
    task: Any = DagSerialization.from_dict(document).get_task("task")
    assert task.task_type == kind.__name__
    assert task.template_fields[0] == "stream"
    assert task.stream == stream.as_dict()
    assert [link.name for link in task.operator_extra_links] == ["Spark UI"]


@pytest.mark.parametrize(("kind", "values"), OPERATORS)
def test_the_stream_and_the_time_limit_are_rendered_for_each_run(kind: Any, values: dict[str, Any]) -> None:
    stream = a_stream(checkpoint="file:///data/{{ run_id }}", lanes="{{ params.n }}", source=["in_{{ params.n }}"])
    operator = kind(task_id="task", stream=stream, timeout="{{ params.n }} minutes", **values)
    operator.render_template_fields({"run_id": "run-7", "params": {"n": 4}})
    assert operator.stream == a_stream(checkpoint="file:///data/run-7", lanes=4, source="in_4")
    assert stream.lanes == "{{ params.n }}"
    if kind is not SparkStreamStopOperator:
        left = datetime.fromisoformat(operator.goal().deadline) - datetime.now(UTC)
        assert timedelta(minutes=3) < left <= timedelta(minutes=4)


def test_a_stream_whose_name_is_a_template_has_no_asset() -> None:
    assert make(SparkStreamSubmitOperator, stream=a_stream(name="{{ x }}")).outlets == []
    assert [a.name for a in make(SparkStreamSubmitOperator).outlets] == ["stream:orders"]
