"""Storage on which another program acts between two calls of the driver."""

from __future__ import annotations

from collections.abc import Callable

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles


class Meanwhile(FsspecFiles):
    """Storage on which another program acts right after the next write of a file."""

    def then(self, act: Callable[[], None]) -> None:
        self._act = act

    def write(self, name: str, text: str) -> None:
        super().write(name, text)
        if act := self.__dict__.pop("_act", None):
            act()
