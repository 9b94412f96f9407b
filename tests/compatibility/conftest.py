"""The folders of stored files, those of this very version among them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.compatibility.machine import copy_as_if_stored_here
from tests.compatibility.store import SINGLE_FILES, STORED, store

THIS_VERSION = "this version"
VERSIONS = sorted(folder.name for folder in STORED.iterdir() if folder.name != SINGLE_FILES)


@pytest.fixture(scope="session")
def this_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What this version stores, so that the script that stores it is tested too."""
    root = tmp_path_factory.mktemp("stored")
    store(root)
    return root


@pytest.fixture(scope="session", params=[*VERSIONS, THIS_VERSION])
def version(request: pytest.FixtureRequest) -> Path:
    """The folder of one version."""
    name = str(request.param)
    return Path(request.getfixturevalue("this_version")) if name == THIS_VERSION else STORED / name


@pytest.fixture(scope="session")
def stored(version: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one version has stored, as if that had been on this machine; to be read only."""
    return copy_as_if_stored_here(version, tmp_path_factory.mktemp("read") / "streams")


@pytest.fixture
def own_copy(version: Path, tmp_path: Path) -> Path:
    """The same, for a test that changes it."""
    return copy_as_if_stored_here(version, tmp_path / "streams")


@pytest.fixture
def single_files(tmp_path: Path) -> Path:
    """What a build has left that kept one restart history and one intent."""
    return Path(shutil.copytree(STORED / SINGLE_FILES, tmp_path / "streams"))
