from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from airflow_ckpt.local.processes.ports import can_bind, free_port, free_ports

pytestmark = pytest.mark.unit


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_free_port_is_kept_and_a_taken_one_replaced(taken: int) -> None:
    other = free_port(taken)

    assert not can_bind(taken)
    assert other != taken
    assert free_port(other) == other


def test_ports_chosen_together_are_different_even_where_the_same_one_is_preferred(taken: int) -> None:
    free = free_port()

    chosen = free_ports([free, free, taken, None])

    assert chosen[0] == free
    assert len({taken, *chosen}) == 5
