"""Offsets of topics, in the form of Spark's offset log."""

from __future__ import annotations

from collections.abc import Mapping

#: ``{topic: {partition: offset}}``
Offsets = Mapping[str, Mapping[str, int]]
