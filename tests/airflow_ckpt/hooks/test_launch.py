"""What a launch puts into its folder: the document, the application and the library."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from airflow.providers.apache.spark.hooks import spark_submit

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.hooks.settings import Settings
from airflow_ckpt.supervision.launch_request import LaunchRequest
from ckpt_stream.protocol.data_loss import LostRange
from ckpt_stream.protocol.settings.config import from_json
from tests.airflow_ckpt.hooks.launches import Make, option
from tests.airflow_ckpt.supervision.samples import a_stream

pytestmark = pytest.mark.unit

# --- the document ------------------------------------------------------------------------------------------------------


def test_the_environment_of_the_driver_reaches_it_wherever_it_runs(make: Make) -> None:
    stream = a_stream(env={"COLOUR": "blue"})
    assert make(stream, order=LaunchRequest("t1")).env["COLOUR"] == "blue"
    launch = make(stream, order=LaunchRequest("t2"), kind="yarn", host="yarn", extra='{"deploy-mode": "cluster"}')
    assert "spark.yarn.appMasterEnv.COLOUR=blue" in launch.argv


def test_the_driver_gets_its_document_as_a_file(make: Make) -> None:
    launch = make(a_stream(lanes=3, options={"text": "ü"}))
    assert launch.argv[-1] == f"@{launch.folder / 'stream.json'}"
    config = from_json((launch.folder / "stream.json").read_text())
    assert (config.lanes, config.token, config.options) == (3, "t1", {"text": "ü"})
    assert config.accepted_loss == ()


def test_lost_data_is_accepted_only_by_order(make: Make) -> None:
    ranges = (LostRange("orders_in", 0, 5, 9), LostRange("orders_out", 1, 7, None))
    launch = make(order=LaunchRequest("t2", accepted_loss=ranges))
    assert from_json((launch.folder / "stream.json").read_text()).accepted_loss == ranges


def test_on_yarn_the_document_travels_with_the_driver(make: Make) -> None:
    launch = make(a_stream(files=["x.txt"]), kind="yarn", host="yarn", extra='{"deploy-mode": "cluster"}')
    assert launch.argv[-1] == "@stream.json"
    assert option(launch, "--files") == f"x.txt,{launch.folder / 'stream.json'}"
    assert (option(launch, "--master"), option(launch, "--deploy-mode")) == ("yarn", "cluster")


@pytest.fixture
def kubernetes_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's provider for Kubernetes, as far as SparkSubmitHook asks for it."""
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


@pytest.mark.usefixtures("kubernetes_provider")
def test_on_kubernetes_the_document_is_the_argument(make: Make) -> None:
    launch = make(
        a_stream(application="local:///opt/orders.py"),
        kind="kubernetes",
        host="k8s://https://m:6443",
        extra='{"deploy-mode": "cluster"}',
    )
    assert from_json(launch.argv[-1]).token == "t1"
    assert launch.argv[-2] == "local:///opt/orders.py"
    assert option(launch, "--py-files") is None


def test_kubernetes_without_its_provider_says_what_to_install(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CkptError, match=r"pip install 'airflow-ckpt\[kubernetes\]'"):
        make(kind="kubernetes", host="k8s://https://m:6443", extra='{"deploy-mode": "cluster"}')


def test_a_yarn_connection_out_of_a_uri_gives_spark_a_master_it_knows(make: Make) -> None:
    launch = make(kind="yarn", conn_type="yarn", host="rm", port=8032, extra='{"deploy-mode": "cluster"}')
    assert option(launch, "--master") == "yarn"


# --- the application ---------------------------------------------------------------------------------------------------


def test_the_application_is_copied_so_that_its_folder_may_go(make: Make, settings: Settings) -> None:
    launch = make()
    copy = Path(launch.argv[-2])
    assert copy == launch.folder / "orders.py"
    (settings.application_folders[1] / "orders.py").unlink()
    assert copy.read_text() == "print('orders')\n"


def test_an_application_is_looked_for_in_the_order_of_the_folders(make: Make, settings: Settings) -> None:
    settings.application_folders[0].mkdir()
    (settings.application_folders[0] / "orders.py").write_text("print('first')\n")
    assert Path(make().argv[-2]).read_text() == "print('first')\n"


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_an_absolute_path_is_taken_as_it_is(make: Make, settings: Settings, scheme: str) -> None:
    path = settings.application_folders[1] / "orders.py"
    assert Path(make(a_stream(application=f"{scheme}{path}")).argv[-2]).read_text() == "print('orders')\n"


def test_an_application_elsewhere_is_left_to_spark(make: Make) -> None:
    assert make(a_stream(application="s3a://apps/orders.py")).argv[-2] == "s3a://apps/orders.py"


def test_an_application_that_is_not_there_is_named_with_the_places_that_were_looked_at(
    make: Make, settings: Settings
) -> None:
    with pytest.raises(CkptError) as caught:
        make(a_stream(application="ordrs.py"))
    text = str(caught.value)
    assert all(str(folder / "ordrs.py") in text for folder in settings.application_folders)
    assert "applications_folder" in text


def test_a_failed_launch_leaves_no_secret_behind(make: Make, settings: Settings) -> None:
    with pytest.raises(CkptError):
        make(a_stream(application="ordrs.py"))
    assert not list(settings.work_folder.iterdir())


def test_the_library_that_is_sent_along_can_be_imported_from_its_file(make: Make) -> None:
    launch = make(a_stream(py_files=["mine.zip"]))
    archive, mine = (option(launch, "--py-files") or "").split(",")
    assert (Path(archive).name, mine) == ("ckpt_stream.zip", "mine.zip")
    code = f"import sys; sys.path.insert(0, {archive!r}); import ckpt_stream.protocol.settings.config as c; print(c.__file__)"
    found = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.startswith(archive)
