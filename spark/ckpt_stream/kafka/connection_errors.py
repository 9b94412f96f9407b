"""Finds out why an admin client has no connection: librdkafka retries a refused login, and then reports only a timeout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Longer than a login takes: a request that is still open after this time may be waiting for a login that Kafka refuses.
LOGIN_SECONDS = 2.0


class ConnectionErrors:
    """The newest connection error of a client."""

    def __init__(self) -> None:
        self._newest: list[Any] = []

    @property
    def newest(self) -> Any | None:
        return self._newest[-1] if self._newest else None

    def callback(self) -> Callable[[Any], None]:
        """For the client's ``error_cb``."""
        return _keep_newest(self._newest)

    def wait_for(self, admin: Any, future: Any) -> Any:
        """Wait for the answer of an admin client; raises at once if Kafka refuses user or password."""
        from confluent_kafka import KafkaException

        self._newest.clear()
        while True:
            try:
                return future.result(timeout=LOGIN_SECONDS)
            except TimeoutError:
                admin.poll(0)
                if self.newest is not None and self.newest.name() == "_AUTHENTICATION":
                    raise KafkaException(self.newest) from None


def _keep_newest(newest: list[Any]) -> Callable[[Any], None]:
    """The callback refers to the list only: a reference to the client's owner would keep the client alive."""

    def keep(error: Any) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":  # this error follows each specific error and gives no reason
            newest[:] = [error]

    return keep
