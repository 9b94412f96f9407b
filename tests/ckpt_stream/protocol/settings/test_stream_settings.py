"""The settings of a stream: each is declared once, and what is known about it follows from that."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from datetime import timedelta
from typing import Any

import pytest

from airflow_ckpt.streams.stream import Stream
from ckpt_stream.errors import ConfigError
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.protocol.settings.setting import (
    Group,
    Kind,
    Setting,
    about,
    check_value,
    default_of,
    may_be_none,
    required,
    setting,
    settings_of,
)
from ckpt_stream.protocol.settings.stream_settings import StreamSettings

pytestmark = pytest.mark.unit

SHARED = {f.name for f in fields(StreamSettings)}


@pytest.mark.parametrize("kind", [Stream, StreamConfig])
def test_a_shared_setting_is_declared_in_one_class_only(kind: type[Any]) -> None:
    assert SHARED & set(vars(kind)["__annotations__"]) == set()
    assert {f.name for f in fields(kind)} > SHARED


@pytest.mark.parametrize("kind", [Stream, StreamConfig])
def test_every_setting_belongs_to_a_group_and_is_documented(kind: type[Any]) -> None:
    found = settings_of(kind)

    assert [name for name, known in found.items() if not known.about] == []
    assert (Group.RUN in {known.group for known in found.values()}) == (kind is StreamConfig)


def test_the_required_settings_are_those_without_a_default() -> None:
    assert required(Stream) == ["name", "sink", "checkpoint", "application"]
    assert required(StreamConfig) == ["name", "sink", "checkpoint", "kafka"]


def test_every_default_passes_its_own_check() -> None:
    config = StreamConfig(name="s", checkpoint="/c", source=("in",), sink="out", kafka={"bootstrap.servers": "b"})
    for name, known in settings_of(config).items():
        if getattr(config, name) is not None:
            check_value(name, getattr(config, name), known)


def test_the_driver_holds_every_length_of_time_in_seconds() -> None:
    config = StreamConfig(name="s", checkpoint="/c", source=("in",), sink="out", kafka={"bootstrap.servers": "b"})
    times = {n for n, known in settings_of(config).items() if known.kind is Kind.DURATION}

    assert times
    assert {name for name in times if type(getattr(config, name)) is not float} == set()
    assert [f.name for f in fields(Stream) if f.name in times and not isinstance(f.default, timedelta)] == []


@dataclass(frozen=True, kw_only=True)
class Pump:
    """A declaration for these tests."""

    place: str = field(metadata=about(Group.SOURCE, Kind.TEXT, "where it stands"))
    speed: int | None = setting(None, Group.SINK, Kind.WHOLE, "turns per minute", least=1, most=9)
    labels: dict[str, str] = setting({}, Group.SINK, Kind.MAPPING, "for people")


def test_a_setting_is_a_field_with_its_default_and_what_is_known_about_it() -> None:
    assert settings_of(Pump)["speed"] == Setting(Group.SINK, Kind.WHOLE, "turns per minute", 1, 9)
    assert [default_of(f) for f in fields(Pump)] == [MISSING, None, {}]
    assert (required(Pump), may_be_none(Pump)) == (["place"], {"speed"})


def test_two_objects_do_not_share_a_mapping_that_is_a_default() -> None:
    one, other = Pump(place="here"), Pump(place="there")
    one.labels["a"] = "b"
    assert other.labels == {}


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Kind.TEXT, "x", 1),
        (Kind.SWITCH, False, "false"),
        (Kind.SWITCH, True, 1),
        (Kind.WHOLE, 3, 3.0),
        (Kind.WHOLE, 3, True),
        (Kind.DURATION, 0.5, "0.5"),
        (Kind.DURATION, 3, float("nan")),
        (Kind.MAPPING, {}, []),
        (Kind.OFFSETS, {"in": {"0": 5}}, "in"),
        (Kind.TEXTS, ["a"], "a"),
        (Kind.TEXTS, ("a", "b"), ("a", "")),
    ],
)
def test_a_value_of_another_kind_is_refused_by_the_settings_name(kind: Kind, good: Any, bad: Any) -> None:
    known = Setting(Group.SOURCE, kind, "for a test")
    check_value("depth", good, known)
    with pytest.raises(ConfigError, match="depth"):
        check_value("depth", bad, known)


@pytest.mark.parametrize(("value", "fits"), [(1, True), (9, True), (0, False), (10, False)])
def test_a_number_beyond_its_limits_is_refused_with_them(value: int, fits: bool) -> None:
    known = settings_of(Pump)["speed"]
    if fits:
        check_value("speed", value, known)
    else:
        with pytest.raises(ConfigError, match=rf"speed={value}.* 1 .* 9"):
            check_value("speed", value, known)
