"""The errors of this package. Each message says what was found, what is at stake, and what to type."""

from __future__ import annotations


class CkptError(Exception):
    """Base of every error this package raises on purpose."""


class StackError(CkptError):
    """The embedded stack (jars, Kafka, Airflow) cannot be brought into the wanted state."""
