"""Topics that a verification needs and that are not there. Pure."""

from __future__ import annotations

from airflow_ckpt.verify.verdict import Finding


def missing_topic(topic: str, role: str) -> Finding:
    return Finding(
        "no_topic",
        f"The {role} topic {topic} does not exist.",
        "check the name; a stream that never ran has no ledger yet, and one that is at_least_once never has",
        topic=topic,
        violation=False,
    )
