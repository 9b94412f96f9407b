"""The document that an application is given: the stream's own, with an accepted loss, or that of a job beside it."""

from __future__ import annotations

import json

import pytest

from airflow_ckpt.supervision.launch_request import LaunchRequest
from ckpt_stream.protocol.data_loss import LostRange
from ckpt_stream.protocol.settings.config import from_json
from tests.airflow_ckpt.supervision.samples import a_stream

pytestmark = pytest.mark.unit

KAFKA = {"bootstrap.servers": "k:9092", "sasl.password": "hunter2"}
LOST = (LostRange("orders_in", 0, 5, 9), LostRange("orders_in", 1, 3, None))


def test_a_driver_is_given_its_token_and_exactly_the_loss_that_a_user_accepted() -> None:
    document = LaunchRequest("t1", accepted_loss=LOST).document_for(a_stream(), KAFKA)
    config = from_json(json.dumps(document))
    assert (config.token, config.accepted_loss) == ("t1", LOST)
    assert "sasl.password" not in config.kafka


def test_without_a_loss_the_document_names_none() -> None:
    assert "accepted_loss" not in LaunchRequest("t1").document_for(a_stream(), KAFKA)


def test_a_job_beside_the_stream_is_given_its_own_document() -> None:
    assert LaunchRequest("t1", document={"name": "verify"}).document_for(a_stream(), KAFKA) == {"name": "verify"}
