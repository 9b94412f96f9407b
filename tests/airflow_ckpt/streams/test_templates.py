"""Templates are known by their marks, texts by their place, and rendered numbers and switches by their words."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ckpt.streams.declared_secrets import secret_names, secret_value
from airflow_ckpt.streams.templates import is_template, names_in, number_or_switch, texts_by_path

pytestmark = pytest.mark.unit

NESTED = {"jdbc": {"url": "a"}, "list": ["b", {"deep": "c"}], "number": 5}


@pytest.mark.parametrize(
    ("value", "found"), [("{{ ds }}", True), ("{% if x %}", True), ("{ds}", False), ("", False), (5, False)]
)
def test_a_template_is_known_by_its_marks(value: Any, found: bool) -> None:
    assert is_template(value) is found


def test_texts_and_names_are_found_at_any_depth() -> None:
    assert texts_by_path(NESTED) == [("jdbc.url", "a"), ("list", "b"), ("list.deep", "c")]
    assert names_in(NESTED) == ["jdbc", "url", "list", "deep", "number"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), (" -2 ", -2), ("True", True), ("false", False), ("None", None), ("null", None), ("", None)],
)
def test_a_rendered_number_or_switch_is_what_it_says(text: str, value: Any) -> None:
    assert number_or_switch(text) is value or number_or_switch(text) == value


def test_another_text_is_neither_number_nor_switch() -> None:
    with pytest.raises(ValueError, match="many"):
        number_or_switch("many")


def test_a_secret_is_found_by_its_name_and_by_its_value_but_not_a_reference_to_one() -> None:
    reference = "spark.kubernetes.driver.secretKeyRef.PW"
    assert secret_names({"b": {"password": "x"}, "a.token": "y", reference: "db:password"}) == ["a.token", "password"]
    assert secret_value({"options": {"url": "jdbc://u:hunter2@db/x"}}) == ("options.url", "a password in a URL")
    assert secret_value({"spark_conf": {reference: "password=x"}}) is None
