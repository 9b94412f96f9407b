"""What the tests of the trigger need."""

from __future__ import annotations

import asyncio

import pytest

from airflow_ckpt.hooks.stream import StreamHook
from airflow_ckpt.streams.status import StreamStatus
from tests.airflow_ckpt.triggers.fakes import Play, WatchedStream

real_sleep = asyncio.sleep


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    def play(*script: StreamStatus | Exception | str) -> WatchedStream:
        stream = WatchedStream(*script)

        async def connect(hook: StreamHook) -> WatchedStream:
            stream.connected += 1
            error = stream.connects.pop(0) if stream.connects else None
            if error is not None:
                raise error
            stream.by = hook.by
            return stream

        monkeypatch.setattr(StreamHook, "aget_conn", connect)
        return stream

    return play


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of the trigger, which take no time."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await real_sleep(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return pauses
