"""A checkpoint whose stream moves on between any two calls of its reader."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

QUERY = "6f412f34-bb6b-4ac9-89f5-2feca2991dc9"


def offsets(batch: int) -> str:
    meta = {"batchWatermarkMs": 0, "batchTimestampMs": 1794944818086, "conf": {}}
    return f"v1\n{json.dumps(meta)}\n" + json.dumps({"orders": {"0": 10 * (batch + 1)}})


class MovingCheckpoint:
    """Before each call it makes the next number of steps; a step writes `offsets/N` or `commits/N`, as Spark does."""

    def __init__(self, steps: Iterable[int], *, begun: int = 0, keep: int = 100) -> None:
        self.steps: Iterator[int] = iter(steps)
        self.keep = keep
        self.written = 0
        self.texts = {"metadata": json.dumps({"id": QUERY})}
        #: Every (newest, committed) that there was since it was first looked at.
        self.states: set[tuple[int | None, int | None]] = set()
        self.move(2 * begun)
        self.states.clear()

    def move(self, steps: int) -> None:
        self._note()
        for _ in range(steps):
            batch, done = divmod(self.written, 2)
            if done:
                self.texts[f"commits/{batch}"] = 'v1\n{"nextBatchWatermarkMs":0}'
            else:
                self.texts[f"offsets/{batch}"] = offsets(batch)
                for log in ("offsets", "commits"):
                    self.texts.pop(f"{log}/{batch - self.keep - 1}", None)
            self.written += 1
            self._note()

    def _note(self) -> None:
        begun, done = (self.written + 1) // 2, self.written // 2
        self.states.add((begun - 1 if begun else None, done - 1 if done else None))

    def exists(self, name: str) -> bool:
        self.move(next(self.steps, 0))
        return name in self.texts

    def read(self, name: str) -> str | None:
        self.move(next(self.steps, 0))
        return self.texts.get(name)

    def names(self, folder: str) -> list[str]:
        self.move(next(self.steps, 0))
        return sorted(name.removeprefix(f"{folder}/") for name in self.texts if name.startswith(f"{folder}/"))
