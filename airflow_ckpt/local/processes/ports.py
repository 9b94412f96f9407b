"""Finds free ports on 127.0.0.1."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from random import SystemRandom

from airflow_ckpt.exceptions import StackError

# Below the range (32768 and up) of ports for outgoing connections: so a port chosen here is still free when a broker that was
# killed is started again.
PORTS_FOR_SERVERS = range(20_000, 32_000)


def free_port(preferred: int | None = None) -> int:
    """A free port on 127.0.0.1: the preferred port if it is free, otherwise any."""
    if preferred is not None and can_bind(preferred):
        return preferred
    for candidate in SystemRandom().sample(PORTS_FOR_SERVERS, k=100):
        if can_bind(candidate):
            return candidate
    raise StackError(f"found no free port between {PORTS_FOR_SERVERS.start} and {PORTS_FOR_SERVERS.stop} on 127.0.0.1")


def free_ports(preferred: Iterable[int | None]) -> list[int]:
    """Different free ports, one for each preferred port (None: any)."""
    chosen: list[int] = []
    for wanted in preferred:
        port = free_port(wanted)
        while port in chosen:
            port = free_port()
        chosen.append(port)
    return chosen


def can_bind(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        # As servers do: connections of a former server in TIME_WAIT do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
