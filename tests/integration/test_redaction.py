"""What Spark shows of a stream whose Kafka needs secrets: plans, errors, web pages and log, without the secrets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt_stream.protocol.settings.input_names import SECRETS_PROPERTY
from tests.support.streams import StreamUnderTest

pytestmark = pytest.mark.integration

SHOWS_ITS_PLANS = str(Path(__file__).with_name("shows_its_plans"))
SECRETS = {
    "sasl.jaas.config": 'org.x.LoginModule required username="app" password="HUSH, x -> \\"y";',
    "ssl.key.password": "HUSH ,None), kafka",
    "ssl.keystore.key": "-----BEGIN PRIVATE KEY-----\nHUSH\nHUSH\n-----END PRIVATE KEY-----\n",
    "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----\nHUSH\n-----END CERTIFICATE-----\n",
    "ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----\nHUSH\n-----END CERTIFICATE-----\n",
}


def test_no_secret_shows_in_plans_errors_pages_or_log(stream: Callable[..., StreamUnderTest]) -> None:
    under_test = stream(SHOWS_ITS_PLANS)
    under_test.feed("a", "b")
    private = under_test.folder / "secrets.conf"
    private.write_text(f"{SECRETS_PROPERTY}={json.dumps({'sasl.password': 'HUSH'})}\n")

    ended = under_test.run(
        drain=False,
        secrets=SECRETS,
        submit=("--properties-file", str(private)),
        conf={
            "spark.ui.enabled": "true", "spark.ui.port": "0", "spark.log.level": "INFO",
            # The deployment's own rules stay in force.
            "spark.redaction.regex": "house[.]rule", "spark.house.rule": "HUSH",
        },
        env={"CKPT_SPARK_LOG_LEVEL": "INFO"},
    )  # fmt: skip

    assert ended.code == 0, ended.log[-3000:]
    assert "['a', 'b']" in ended.log, "the query did not run"
    assert "=== rows in a batch\n1\n" in ended.log
    assert ended.log.count("=== error") == 2
    for shown in (
        "== Parsed Logical Plan ==",
        "UNRESOLVED_COLUMN",
        "sparkProperties",
        "StreamingRelationV2",
        "(redacted)",
    ):
        assert shown in ended.log
    assert [line for line in ended.log.splitlines() if "HUSH" in line] == []
