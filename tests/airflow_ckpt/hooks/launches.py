"""What the tests of a launch share: its Kafka settings, a runner, and how an option of its command is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_ckpt.runners.base import Launch

#: A password with every character that a properties file, a template or a shell treats in a special way.
PASSWORD = " a\\b\\\\c\\u0041\"q'=:#!ü€\U0001f600\n\t{{ x }} $HOME ${env:HOME} "
KAFKA = {"bootstrap.servers": "k:9092", "sasl.username": "u", "sasl.password": PASSWORD}


class Kind:
    """As much of a runner as a launch is made for."""

    def __init__(self, kind: str = "process") -> None:
        self.kind = kind

    def properties(self, token: str) -> Mapping[str, str]:
        return {"spark.yarn.tags": token}


Make = Callable[..., Launch]


def option(launch: Launch, name: str) -> str | None:
    return launch.argv[launch.argv.index(name) + 1] if name in launch.argv else None
