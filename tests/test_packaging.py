"""The wheel as a user gets it: installed beside an existing Airflow, in a virtual environment of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

from airflow_ckpt import __version__

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[1]
EXISTING_AIRFLOW = "apache-airflow==3.3.2"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT))
    return next(folder.glob("*.whl"))


class Environment:
    """A virtual environment, filled by uv if there is one, else by pip."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        own_uv = ROOT / ".uv" / "bin" / "uv"
        self._uv = str(own_uv) if own_uv.exists() else shutil.which("uv")
        if self._uv:
            _run(self._uv, "venv", "--python", sys.executable, str(folder))
        else:
            _run(sys.executable, "-m", "venv", str(folder))

    def install(self, *requirements: str) -> None:
        if self._uv:
            _run(self._uv, "pip", "install", "--python", str(self.python), *requirements)
        else:
            _run(str(self.python), "-m", "pip", "install", *requirements)

    def versions(self) -> dict[str, Version]:
        """Every installed distribution."""
        code = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
        installed = json.loads(_run(str(self.python), "-c", code))
        return {canonicalize_name(name): Version(version) for name, version in installed.items()}


@pytest.fixture(scope="module")
def installed(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Environment, dict[str, Version], dict[str, Version]]:
    """An environment with Airflow and then the wheel, and its versions before and after the wheel."""
    environment = Environment(tmp_path_factory.mktemp("venv") / "venv")
    environment.install(EXISTING_AIRFLOW)
    before = environment.versions()
    environment.install(str(wheel))
    return environment, before, environment.versions()


def test_the_wheel_holds_both_packages_with_their_types_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    assert {name.split("/")[0] for name in names} == {
        "airflow_ckpt",
        "ckpt_stream",
        f"airflow_ckpt-{__version__}.dist-info",
    }
    assert {"airflow_ckpt/py.typed", "ckpt_stream/py.typed"} <= set(names)
    assert f"airflow_ckpt-{__version__}.dist-info/licenses/LICENSE" in names


def test_installing_it_downgrades_nothing_of_an_existing_airflow(
    installed: tuple[Environment, dict[str, Version], dict[str, Version]],
) -> None:
    _, before, after = installed

    assert before["apache-airflow"] == after["apache-airflow"] == Version(EXISTING_AIRFLOW.split("==")[1])
    assert {
        name: (str(before[name]), str(after.get(name)))
        for name in before
        if after.get(name, Version("0")) < before[name]
    } == {}


def test_airflow_lists_it_as_a_provider(
    installed: tuple[Environment, dict[str, Version], dict[str, Version]], tmp_path: Path
) -> None:
    environment, _, _ = installed

    listed = json.loads(
        _run(str(environment.python), "-m", "airflow", "providers", "list", "-o", "json", AIRFLOW_HOME=str(tmp_path))
    )

    assert {provider["package_name"]: provider["version"] for provider in listed}["airflow-ckpt"] == __version__


def test_its_command_runs(installed: tuple[Environment, dict[str, Version], dict[str, Version]]) -> None:
    environment, _, _ = installed

    assert _run(str(environment.folder / "bin" / "airflow-ckpt"), "--version") == f"airflow-ckpt {__version__}\n"


def _run(*argv: str, **env: str) -> str:
    done = subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}\n{done.stdout}\n{done.stderr}"
    return done.stdout
