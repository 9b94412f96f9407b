"""What Airflow is told about this provider is well-formed, true, and cheap to ask."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import airflow
import jsonschema  # type: ignore[import-untyped]
import pytest
from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger

import airflow_ckpt
from airflow_ckpt.get_provider_info import get_provider_info
from airflow_ckpt.hooks.settings import Settings

pytestmark = pytest.mark.unit

INFO = get_provider_info()
MODULES = [
    module
    for kind in ("operators", "sensors", "hooks", "triggers")
    for group in INFO[kind]
    for module in group["python-modules"]
]


def test_it_fits_the_schema_of_airflow() -> None:
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(INFO, schema)


@pytest.mark.parametrize("module", MODULES)
def test_every_module_that_it_names_can_be_imported(module: str) -> None:
    assert import_module(module)


@pytest.mark.parametrize("path", [*INFO["notifications"], *INFO["extra-links"]])
def test_every_class_that_it_names_is_there(path: str) -> None:
    module, _, name = path.rpartition(".")
    assert isinstance(getattr(import_module(module), name), type)


@pytest.mark.parametrize("kind", ["operators", "sensors", "triggers"])
def test_no_module_of_a_kind_is_left_out(kind: str) -> None:
    folder = Path(airflow_ckpt.__file__).parent / kind
    modules = {f"airflow_ckpt.{kind}.{path.stem}" for path in folder.glob("*.py")} - {f"airflow_ckpt.{kind}.__init__"}
    with_a_task_or_trigger = {
        name
        for name in modules
        for found in vars(import_module(name)).values()
        if isinstance(found, type) and issubclass(found, BaseOperator | BaseTrigger) and found.__module__ == name
    }
    named = {module for group in INFO[kind] for module in group["python-modules"]}
    assert with_a_task_or_trigger - {"airflow_ckpt.operators.base"} == named


def test_every_link_of_an_operator_is_registered() -> None:
    """Airflow shows no link of a class that it was not told of."""
    from airflow_ckpt.operators.base import StreamOperator

    used = {f"{type(link).__module__}.{type(link).__qualname__}" for link in StreamOperator.operator_extra_links}
    assert used <= set(INFO["extra-links"])


def test_every_option_that_is_read_is_described_with_a_default() -> None:
    options = INFO["config"]["airflow_ckpt"]["options"]
    assert set(options) == {"work_folder", "applications_folder", "spark_jars", "poll_interval"}
    assert len(options) == len(Settings.__dataclass_fields__)
    assert all(isinstance(option["default"], str) for option in options.values())


def test_every_public_name_is_there() -> None:
    for name in airflow_ckpt.__all__:
        assert getattr(airflow_ckpt, name) is not None
    with pytest.raises(AttributeError):
        _ = airflow_ckpt.nothing


def test_asking_imports_nothing_of_airflow_spark_or_kafka() -> None:
    """Airflow asks before it is configured itself."""
    code = (
        "import sys; from airflow_ckpt.get_provider_info import get_provider_info; get_provider_info();"
        "print([m for m in ('airflow', 'pyspark', 'confluent_kafka', 'fsspec', 'pydantic') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_entry_point_leads_to_it() -> None:
    from importlib.metadata import entry_points

    [point] = [p for p in entry_points(group="apache_airflow_provider") if p.value.startswith("airflow_ckpt.")]
    described: Any = point.load()()
    assert described == INFO
