"""What the user `app` may do on a secured Kafka, for the time of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from airflow_ckpt.local.kafka.cluster import KafkaCluster

Rule = tuple[ResourceType, str, ResourcePatternType, AclOperation, AclPermissionType]


@contextmanager
def rules(kafka: KafkaCluster, *wanted: Rule) -> Iterator[None]:
    """ACLs for the user `app`. Where there is one for a resource, what none allows is forbidden too."""
    admin = AdminClient(kafka.client_config(secure=True, user="admin"))
    named = [
        (kind, name, pattern, "User:app", "*", operation, effect) for kind, name, pattern, operation, effect in wanted
    ]
    for future in admin.create_acls([AclBinding(*rule) for rule in named]).values():
        future.result(timeout=30)
    try:
        yield
    finally:
        for future in admin.delete_acls([AclBindingFilter(*rule) for rule in named]).values():
            future.result(timeout=30)


def allow(
    kind: ResourceType, name: str, operation: AclOperation, pattern: ResourcePatternType = ResourcePatternType.LITERAL
) -> Rule:
    return (kind, name, pattern, operation, AclPermissionType.ALLOW)


def deny(
    kind: ResourceType, name: str, operation: AclOperation, pattern: ResourcePatternType = ResourcePatternType.LITERAL
) -> Rule:
    return (kind, name, pattern, operation, AclPermissionType.DENY)
