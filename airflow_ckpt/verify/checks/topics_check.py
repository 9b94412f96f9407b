"""The finding for a topic that a verification needs and that does not exist. Pure."""

from __future__ import annotations

from airflow_ckpt.verify.verdict import Finding


def missing_topic(topic: str, role: str) -> Finding:
    return Finding(
        "no_topic",
        f"The {role} topic {topic} does not exist.",
        "check the name; a stream that has never run has no ledger yet, and an at_least_once stream never has a ledger",
        topic=topic,
        violation=False,
    )
