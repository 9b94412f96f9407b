"""A setting that is one of a few names: any other value is named with the stream and with the names that there are."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ckpt.exceptions import BadStream
from airflow_ckpt.streams.stream import Stream
from ckpt_stream.protocol.settings.setting import may_be_none, settings_of
from tests.airflow_ckpt.supervision.samples import a_stream

pytestmark = pytest.mark.unit

CHOICES = {name: known.one_of for name, known in settings_of(Stream).items() if known.one_of}


@pytest.mark.parametrize("value", [None, "", "other", 1, ["auto"]])
@pytest.mark.parametrize("name", CHOICES)
def test_another_value_is_refused_with_the_stream_and_what_is_allowed(name: str, value: Any) -> None:
    if value in (None, "") and name in may_be_none(Stream):
        assert getattr(a_stream(**{name: value}), name) is None
        return
    with pytest.raises(BadStream) as refused:
        a_stream(**{name: value})

    assert "'orders'" in str(refused.value)
    assert f"{name}={value!r}" in str(refused.value)
    assert ", ".join(CHOICES[name]) in str(refused.value)


@pytest.mark.parametrize("name", sorted(set(CHOICES) - may_be_none(Stream)))
def test_a_template_that_renders_to_nothing_is_refused(name: str) -> None:
    """With the default in its place a stream could begin elsewhere, or drop records that it was to keep."""
    with pytest.raises(BadStream, match=f"{name}=''"):
        a_stream(**{name: "{{ choice }}"}).rendered(lambda settings: {**settings, name: ""})


def test_it_is_refused_before_the_templates_are_rendered() -> None:
    with pytest.raises(BadStream, match="start='yesterday' is none of group"):
        a_stream(sink="{{ topic }}", start="yesterday")


@pytest.mark.parametrize("name", CHOICES)
def test_a_template_is_checked_when_it_is_rendered(name: str) -> None:
    stream = a_stream(**{name: "{{ choice }}"})

    with pytest.raises(BadStream, match=f"{name}='other' is none of"):
        stream.rendered(lambda settings: {**settings, name: "other"})
