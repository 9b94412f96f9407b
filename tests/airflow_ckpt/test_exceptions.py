"""The errors of airflow_ckpt are one tree, in one file."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import airflow_ckpt
from airflow_ckpt import exceptions
from airflow_ckpt.exceptions import CkptError

pytestmark = pytest.mark.unit


def classes_of(module_name: str) -> list[type]:
    module = importlib.import_module(module_name)
    return [found for _, found in inspect.getmembers(module, inspect.isclass) if found.__module__ == module_name]


def all_modules() -> list[str]:
    return [module.name for module in pkgutil.walk_packages(airflow_ckpt.__path__, "airflow_ckpt.")]


def test_every_error_is_defined_in_the_one_file() -> None:
    errors = {
        f"{found.__module__}.{found.__qualname__}"
        for module in all_modules()
        for found in classes_of(module)
        if issubclass(found, BaseException)
    }

    assert {name for name in errors if not name.startswith(f"{exceptions.__name__}.")} == set()
    assert f"{exceptions.__name__}.GivenUp" in errors


@pytest.mark.parametrize(
    "error", [c for c in classes_of(exceptions.__name__) if issubclass(c, BaseException)], ids=lambda c: str(c.__name__)
)
def test_every_error_is_a_ckpt_error(error: type) -> None:
    assert issubclass(error, CkptError)
