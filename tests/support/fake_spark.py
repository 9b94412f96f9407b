"""As much of a Spark session as starts a query or reads a topic: what is read and started is noted, nothing is computed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

#: Analysed plans as Spark prints them, of a transform without state and of one with it.
STATELESS = "Project [key#7, upper(value#8) AS value#21]\n+- StreamingRelationV2 kafka"
STATEFUL = "Project [key#7, n#31L]\n+- Aggregate [key#7], [key#7, count(1) AS n#31L]\n   +- StreamingRelationV2 kafka"


class FakeFrame:
    """A frame that knows its plan, and the options of the reader that it comes from."""

    def __init__(self, plan: str = STATELESS, options: Mapping[str, str] | None = None) -> None:
        self.plan, self.options = plan, dict(options or {})
        self.columns = ["key", "value"]
        #: What becomes of a query on this frame; its result is what `start` gives back.
        self.when_started: Callable[[FakeWriter], Any] = lambda writer: writer

    @property
    def _jdf(self) -> Any:
        analyzed = SimpleNamespace(toString=lambda: self.plan)
        return SimpleNamespace(queryExecution=lambda: SimpleNamespace(analyzed=lambda: analyzed))

    @property
    def writeStream(self) -> FakeWriter:
        return FakeWriter(self)

    def select(self, *columns: Any) -> FakeFrame:
        return self

    @property
    def ranges(self) -> dict[str, dict[int, tuple[int, int]]]:
        """What a batch reader reads of each topic: {topic: {partition: (start, end)}}."""
        starts, ends = (json.loads(self.options[name]) for name in ("startingOffsets", "endingOffsets"))
        return {t: {int(p): (starts[t][p], end) for p, end in parts.items()} for t, parts in ends.items()}


class FakeWriter:
    """A query before it is started."""

    def __init__(self, frame: FakeFrame) -> None:
        self.frame = frame
        self.name: str | None = None
        self.mode: str | None = None
        self.options: dict[str, str] = {}
        self.triggers: dict[str, Any] = {}
        #: What Spark calls with the rows and the number of each batch.
        self.write: Callable[[Any, int], None] = lambda rows, batch: None

    def queryName(self, name: str) -> FakeWriter:
        self.name = name
        return self

    def outputMode(self, mode: str) -> FakeWriter:
        self.mode = mode
        return self

    def option(self, name: str, value: str) -> FakeWriter:
        self.options[name] = value
        return self

    def trigger(self, **kind: Any) -> FakeWriter:
        self.triggers = kind
        return self

    def foreachBatch(self, write: Callable[[Any, int], None]) -> FakeWriter:
        self.write = write
        return self

    def start(self) -> Any:
        return self.frame.when_started(self)


class FakeSpark:
    """A session whose readers give frames of their options."""

    def __init__(self) -> None:
        #: Every frame that was read, in order.
        self.streams: list[FakeFrame] = []
        self.batches: list[FakeFrame] = []
        self.conf = SimpleNamespace(get=lambda name, default=None: default)

    @property
    def readStream(self) -> Any:
        return _Reader(self.streams)

    @property
    def read(self) -> Any:
        return _Reader(self.batches)

    def createDataFrame(self, rows: list[Any], schema: str) -> FakeFrame:
        self.batches.append(FakeFrame(options={"startingOffsets": "{}", "endingOffsets": "{}"}))
        return self.batches[-1]


class _Reader:
    def __init__(self, made: list[FakeFrame]) -> None:
        self._made, self._options = made, dict[str, str]()

    def format(self, kind: str) -> _Reader:
        return self

    def schema(self, schema: str) -> _Reader:
        return self

    def options(self, **options: str) -> _Reader:
        self._options.update(options)
        return self

    def load(self) -> FakeFrame:
        self._made.append(FakeFrame(options=self._options))
        return self._made[-1]

    def parquet(self, path: str) -> FakeFrame:
        self._options["path"] = path
        return self.load()
