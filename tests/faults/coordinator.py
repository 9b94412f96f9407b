"""Asks Kafka which broker coordinates a transactional id: a call of the protocol that confluent-kafka does not offer."""

from __future__ import annotations

import socket
import struct

FIND_COORDINATOR = 10
TRANSACTION = 1


def find_coordinator(address: str, transactional_id: str) -> int | None:
    """The number of the broker that coordinates this id, as the broker at `address` says; None while it does not know.

    FindCoordinator version 1: https://kafka.apache.org/protocol.html#The_Messages_FindCoordinator
    """
    body = struct.pack(">hhi", FIND_COORDINATOR, 1, 0) + _string("test") + _string(transactional_id)
    body += struct.pack(">b", TRANSACTION)
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = connection.makefile("rb")
            (length,) = struct.unpack(">i", answer.read(4))
            content = answer.read(length)
    except (OSError, struct.error):
        return None
    _correlation, _throttle, error, message_length = struct.unpack_from(">iihh", content)
    (node,) = struct.unpack_from(">i", content, 12 + max(message_length, 0))
    return None if error else node


def coordinating_partition(transactional_id: str, partitions: int) -> int:
    """The partition of __transaction_state that holds this id: Java's hash of the string, made positive."""
    code = 0
    for unit in memoryview(transactional_id.encode("utf-16-be")).cast("B", (len(transactional_id), 2)).tolist():
        code = (31 * code + unit[0] * 256 + unit[1]) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
