"""Why an admin client has no connection: librdkafka retries a refused login, and in the end reports only a timeout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Longer than a login takes. A question that is still open may wait for a login that Kafka refuses.
LOGIN_SECONDS = 2.0


class ConnectionErrors:
    """The newest error of a client's connections."""

    def __init__(self) -> None:
        self._newest: list[Any] = []

    @property
    def newest(self) -> Any | None:
        return self._newest[-1] if self._newest else None

    def callback(self) -> Callable[[Any], None]:
        """For the client's ``error_cb``."""
        return _keep_newest(self._newest)

    def wait_for(self, admin: Any, future: Any) -> Any:
        """The answer of an admin client; raises at once when Kafka refuses user or password."""
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
    """Refers to the list only: a callback that referred to the client's owner would keep the client alive."""

    def keep(error: Any) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":  # which comes after each reason and names none
            newest[:] = [error]

    return keep
