"""Where an application finds its document and its secrets, and what it refuses there."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpt_stream.errors import ConfigError
from ckpt_stream.machine.application_input import find_document, with_secrets
from ckpt_stream.protocol.settings.input_names import ENVIRONMENT, SECRETS_ENVIRONMENT, SECRETS_PROPERTY

pytestmark = pytest.mark.unit

KAFKA = {"bootstrap.servers": "localhost:9092"}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    monkeypatch.delenv(SECRETS_ENVIRONMENT, raising=False)


def test_the_document_is_the_first_argument() -> None:
    assert find_document(["app.py", "{}"]) == "{}"


def test_the_document_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "stream.json"
    file.write_text('{"name": "ünïcode"}', encoding="utf-8")
    assert find_document(["app.py", f"@{file}"]) == '{"name": "ünïcode"}'


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.json"):
        find_document(["app.py", f"@{tmp_path / 'missing.json'}"])
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="binary"):
        find_document(["app.py", f"@{tmp_path / 'binary'}"])


def test_without_an_argument_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, '{"a": 1}')
    assert find_document(["app.py"]) == '{"a": 1}'
    assert find_document(["app.py", "{}"]) == "{}"


def test_without_any_document_all_three_ways_are_named() -> None:
    with pytest.raises(ConfigError, match=f"@file.* {ENVIRONMENT}"):
        find_document(["app.py"])


def test_secrets_are_added_to_the_settings_and_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    public = {"bootstrap.servers": "b:1", "sasl.username": "document"}
    monkeypatch.setenv(SECRETS_ENVIRONMENT, '{"sasl.password": "environment"}')
    settings = with_secrets(public, '{"sasl.password": "property", "sasl.username": "property"}')
    assert settings == {"bootstrap.servers": "b:1", "sasl.username": "property", "sasl.password": "environment"}
    assert public == {"bootstrap.servers": "b:1", "sasl.username": "document"}


@pytest.mark.parametrize("text", [None, ""])
def test_without_secrets_the_settings_are_those_of_the_document(text: str | None) -> None:
    assert with_secrets(KAFKA, text) == KAFKA


@pytest.mark.parametrize("text", ["hunter2", '"hunter2"', '["hunter2"]', '[["hunter2", 1]]', "5", "null"])
@pytest.mark.parametrize("place", [SECRETS_PROPERTY, SECRETS_ENVIRONMENT])
def test_secrets_that_are_no_object_are_refused_by_their_place_and_without_their_value(
    monkeypatch: pytest.MonkeyPatch, place: str, text: str
) -> None:
    if place == SECRETS_ENVIRONMENT:
        monkeypatch.setenv(SECRETS_ENVIRONMENT, text)
    with pytest.raises(ConfigError) as refusal:
        with_secrets(KAFKA, text if place == SECRETS_PROPERTY else None)
    assert place in str(refusal.value)
    assert "hunter2" not in str(refusal.value)
    assert refusal.value.__cause__ is None
