"""Offsets of topics, as Spark's own offset log has them."""

from __future__ import annotations

from collections.abc import Mapping

#: ``{topic: {partition: offset}}``
Offsets = Mapping[str, Mapping[str, int]]
