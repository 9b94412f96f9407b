"""The templates in the declaration of a stream: rendered as what they stand for, and checked when that is known."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_ckpt.exceptions import BadStream
from tests.airflow_ckpt.supervision.samples import a_stream

pytestmark = pytest.mark.unit


def rendering(**values: str) -> Any:
    """What Airflow does to the JSON values of a stream, for `{{ name }}` alone."""

    def render(value: Any) -> Any:
        if isinstance(value, str):
            for name, text in values.items():
                value = value.replace("{{ " + name + " }}", text)
            return value
        if isinstance(value, dict):
            return {k: render(v) for k, v in value.items()}
        return [render(v) for v in value] if isinstance(value, list) else value

    return render


def test_every_text_of_a_stream_is_rendered() -> None:
    stream = a_stream(
        checkpoint="file:///data/{{ x }}",
        source=["in_{{ x }}"],
        options={"deep": [{"er": "{{ x }}"}]},
        spark_conf={"spark.app.name": "{{ x }}"},
    )
    found = stream.rendered(rendering(x="a"))
    assert (found.checkpoint, found.source, found.spark_conf) == ("file:///data/a", ("in_a",), {"spark.app.name": "a"})
    assert found.options == {"deep": [{"er": "a"}]}
    assert not found.has_templates


def test_numbers_switches_and_times_come_out_of_templates_as_what_they_are() -> None:
    stream = a_stream(
        lanes="{{ n }}",
        max_offsets_per_batch="{{ n }}",
        drain="{{ yes }}",
        trigger_interval="{{ n }}",
        stall_after="{{ t }}",
    )
    found = stream.rendered(rendering(n="4", yes="True", t="2 minutes"))
    assert (found.lanes, found.max_offsets_per_batch, found.drain) == (4, 4, True)
    assert (found.trigger_interval, found.stall_window) == (timedelta(seconds=4), timedelta(minutes=2))
    assert found.config.lanes == 4


def test_a_template_that_comes_out_empty_leaves_the_number_out() -> None:
    assert a_stream(max_offsets_per_batch="{{ n }}").rendered(rendering(n="None")).max_offsets_per_batch is None


def test_a_number_that_comes_out_as_something_else_is_refused_by_name() -> None:
    with pytest.raises(BadStream, match=r"lanes=\.\.\..*'many'"):
        a_stream(lanes="{{ n }}").rendered(rendering(n="many"))


def test_what_a_template_hid_is_checked_when_it_is_rendered() -> None:
    stream = a_stream(source="{{ topic }}")
    with pytest.raises(BadStream, match="'orders_out'"):
        stream.rendered(rendering(topic="orders_out"))


def test_a_stream_without_templates_is_not_rendered() -> None:
    stream = a_stream()
    assert stream.rendered(lambda value: pytest.fail("rendered")) is stream
