"""A driver armed with an unusable text ends before it changes anything."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt_stream.machine import crashes
from ckpt_stream.protocol.run_files.run_record import FAILED, RUNNING, STARTING
from ckpt_stream.spark.unsafe_settings import IGNORE_LEDGER
from tests.ckpt_stream.driver.driver_world import EARLIER, NotedWrites, World
from tests.support.fake_kafka import FakeBroker

pytestmark = pytest.mark.unit


def test_a_run_with_a_text_that_arms_no_crash_fails_with_what_to_type(
    broker: FakeBroker, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crashes, "_unusable", "CKPT_CRASH cannot be used: unset it.")
    world = World(broker, NotedWrites(str(tmp_path)), monkeypatch)

    record = world.drive()

    assert (record.state, world.code, world.started) == (FAILED, 1, [])
    assert record.failure is not None
    assert (record.failure.error, record.failure.restart_may_help) == ("ConfigError", False)
    assert "unset it" in world.line


@pytest.mark.parametrize("unsafe", [False, True])
def test_a_run_that_could_not_begin_says_first_that_another_one_lives(
    broker: FakeBroker, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, unsafe: bool
) -> None:
    """Readers of run records look no further back than to a run that has failed for any other reason."""
    if unsafe:
        monkeypatch.setenv(IGNORE_LEDGER, "1")
    else:
        monkeypatch.setattr(crashes, "_unusable", "CKPT_CRASH cannot be used: unset it.")
    world = World(broker, NotedWrites(str(tmp_path)), monkeypatch)
    world.other(EARLIER, STARTING, RUNNING)

    failure = world.drive().failure

    assert failure is not None
    assert failure.error == "DriverAlive"
