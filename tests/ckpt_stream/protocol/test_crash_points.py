"""Crash points: their names, and armed crashes that could not hit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ckpt_stream.errors import ConfigError
from ckpt_stream.protocol import crash_points

pytestmark = pytest.mark.unit

NO_ORDERS = ["{", "7", "[7]", "{}", '"mid_produce"']


@pytest.fixture
def once(tmp_path: Path) -> Path:
    return tmp_path / "once"


def crash(once: Path, kill: str = "worker", **where: Any) -> dict[str, Any]:
    return {"point": crash_points.AFTER_FLUSH, "kill": kill, "once": str(once), **where}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"point": "after_lunch"}, "offsets_logged, after_init"),
        ({"kill": "everyone"}, "driver, worker, both"),
        ({"kill": None}, "driver, worker, both"),
        ({"once": None}, "`once`"),
        # A number would be taken for an open file.
        ({"once": 1}, "`once`"),
    ],
)
def test_an_order_that_could_not_hit_is_an_error_and_not_a_test_that_proves_nothing(
    once: Path, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError) as error:
        crash_points.armed_crashes(json.dumps({**crash(once), **change}))
    assert words in str(error.value)
    assert "Unset it, or set it as in CKPT_CRASH='{" in str(error.value)


@pytest.mark.parametrize("text", NO_ORDERS)
def test_a_text_that_is_no_order_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="CKPT_CRASH"):
        crash_points.armed_crashes(text)


@pytest.mark.parametrize("point", crash_points.POINTS)
def test_every_point_can_be_armed(once: Path, point: str) -> None:
    (armed,) = crash_points.armed_crashes(json.dumps({**crash(once), "point": point}))
    assert armed["point"] == point


def test_the_points_are_those_of_the_protocol_and_the_drivers_are_among_them() -> None:
    assert len(set(crash_points.POINTS)) == 10
    assert set(crash_points.DRIVER_POINTS) < set(crash_points.POINTS)
