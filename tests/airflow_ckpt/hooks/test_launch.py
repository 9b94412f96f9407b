"""A spark-submit made out of a stream: everything in a folder of its own, secrets in a private file only."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.sdk import Connection
from airflow.sdk.bases.hook import BaseHook

from airflow_ckpt.checkpoint.files import FsspecFiles
from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.hooks.connections import Connections, spark_target
from airflow_ckpt.hooks.launch import make_launch
from airflow_ckpt.hooks.settings import Settings
from airflow_ckpt.runners.base import Handle, Launch
from airflow_ckpt.runners.noted_launch import NOTE, noted_launch
from airflow_ckpt.runners.process import ProcessRunner
from airflow_ckpt.streams.control import Order, StreamControl
from airflow_ckpt.streams.intent import INTENTS
from airflow_ckpt.streams.observe import Sources
from airflow_ckpt.streams.preflight import KINDS
from airflow_ckpt.streams.restart import NoRestart
from airflow_ckpt.streams.stream import Stream
from ckpt_stream.config import SECRETS_PROPERTY, from_json, with_secrets
from ckpt_stream.data_loss import Lost
from tests.airflow_ckpt.streams.samples import a_stream, an_intent

pytestmark = pytest.mark.unit

#: Whatever a person may have as a password, and whatever a properties file might do to it.
PASSWORD = " a\\b\\\\c\\u0041\"q'=:#!ü€\U0001f600\n\t{{ x }} $HOME ${env:HOME} "
KAFKA = {"bootstrap.servers": "k:9092", "sasl.username": "u", "sasl.password": PASSWORD}


class Kind:
    """As much of a runner as a launch is made for."""

    def __init__(self, kind: str = "process") -> None:
        self.kind = kind

    def properties(self, token: str) -> Mapping[str, str]:
        return {"spark.yarn.tags": token}


Make = Callable[..., Launch]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    apps = tmp_path / "apps"
    apps.mkdir()
    (apps / "orders.py").write_text("print('orders')\n")
    return Settings(tmp_path / "work", (tmp_path / "first", apps), ("/jars/kafka.jar",), 10.0)


@pytest.fixture
def make(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Make:
    def make(
        stream: Stream | None = None,
        *,
        kind: str = "process",
        kafka: Mapping[str, Any] = KAFKA,
        order: Order | None = None,
        settings: Settings = settings,
        **spark: Any,
    ) -> Launch:
        known = Connection(conn_id="spark_default", **{"conn_type": "spark", "host": "local[*]", **spark})
        monkeypatch.setattr(BaseHook, "get_connection", staticmethod(lambda name: known))
        connections = Connections(kafka, spark_target(known, "spark_default"))
        runner: Any = Kind(kind)
        return make_launch(stream or a_stream(), order or Order("t1"), connections, runner, settings)

    return make


def option(launch: Launch, name: str) -> str | None:
    return launch.argv[launch.argv.index(name) + 1] if name in launch.argv else None


def as_java_reads(line: str) -> tuple[str, str]:
    """Name and value of one line of a properties file, by the rules of java.util.Properties."""
    assert line.isascii()
    name, _, value = line.partition("=")
    named = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}

    def plain(found: re.Match[str]) -> str:
        text = found.group(1)
        return chr(int(text[1:], 16)) if text[0] == "u" and len(text) == 5 else named.get(text, text)

    return name, re.sub(r"\\(u[0-9a-fA-F]{4}|.)", plain, value.lstrip())


# --- secrets -----------------------------------------------------------------------------------------------------------


def test_no_secret_is_in_the_command_its_environment_or_the_drivers_document(make: Make) -> None:
    launch = make(kafka={**KAFKA, "sasl.password": "hunter2", "ssl.key.pem": "hunter2"})
    seen = [*launch.argv, *launch.env.values(), (launch.folder / "stream.json").read_text()]
    assert not [text for text in seen if "hunter2" in text]


def test_the_driver_reads_every_secret_exactly_as_it_was_given(make: Make) -> None:
    launch = make()
    [path] = launch.secret_files
    [line] = Path(path).read_text().splitlines()
    name, value = as_java_reads(line)
    assert name == SECRETS_PROPERTY
    document = from_json((launch.folder / "stream.json").read_text())
    assert with_secrets(document.kafka, value) == KAFKA


def test_the_command_is_noted_on_this_machine_for_its_owner_alone(make: Make, settings: Settings) -> None:
    stream = a_stream(env={"A": "b"})
    launch = make(stream)
    assert stat.S_IMODE((launch.folder / NOTE).stat().st_mode) == 0o600
    assert settings.work_folder.stat().st_mode & 0o022 == 0
    noted = noted_launch(settings.work_folder, "t1")
    assert noted is not None
    assert (noted.argv, noted.env, noted.stream, noted.job) == (
        launch.argv, launch.env, json.loads(json.dumps(stream.as_dict())), False,
    )  # fmt: skip
    make(stream, order=Order("t2", document={"name": "verify"}))
    job = noted_launch(settings.work_folder, "t2")
    assert job is not None
    assert job.job


def test_airflow_starts_what_the_dag_declares_whatever_is_noted_beside_the_checkpoint(
    make: Make, settings: Settings, tmp_path: Path
) -> None:
    """The same look and the same launch as an operator's; beside the checkpoint is another command and another stream."""
    stream = a_stream(checkpoint=str(tmp_path / "checkpoint"), restart=NoRestart())
    forged = a_stream(
        checkpoint=stream.checkpoint, application="/tmp/evil.py", sink="elsewhere", env={"LD_PRELOAD": "/x"}
    )
    intent = {
        "format": 1,
        **asdict(an_intent(stream=forged.as_dict())),
        "command": {"argv": ["evil"], "folder": "/tmp"},
    }
    files = FsspecFiles(stream.checkpoint)
    files.write(f"{INTENTS}/00000001.json", json.dumps(intent))
    launches: list[Launch] = []

    class Starts(ProcessRunner):
        def start(self, launch: Launch, token: str) -> Handle:
            launches.append(launch)
            return Handle("process", "1", token)

    runner = Starts(settings.work_folder, stream.checkpoint)
    control = StreamControl(
        Sources(stream, files, None, runner), lambda order: make(stream, order=order, kafka=KAFKA), "dag.resume run"
    )
    control.resume(control.status(), allow=KINDS)

    [launch] = launches
    assert launch.env == {"PYSPARK_PYTHON": launch.env["PYSPARK_PYTHON"]}
    assert Path(launch.argv[-2]).read_text() == "print('orders')\n"
    assert json.loads((launch.folder / "stream.json").read_text())["sink"] == stream.sink
    assert not [word for word in launch.argv if "evil" in word]


def test_what_a_run_needs_can_be_read_by_its_owner_alone(make: Make) -> None:
    launch = make()
    assert stat.S_IMODE(launch.folder.stat().st_mode) == 0o700
    for path in (launch.folder / "stream.json", Path(launch.secret_files[0])):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_properties_file_of_ours_does_not_hide_that_of_the_deployment(make: Make) -> None:
    launch = make()
    assert option(launch, "--properties-file") == launch.secret_files[0]
    assert "--load-spark-defaults" in launch.argv


def test_without_secrets_there_is_no_properties_file(make: Make) -> None:
    launch = make(kafka={"bootstrap.servers": "k:9092"})
    assert launch.secret_files == ()
    assert not {"--properties-file", "--load-spark-defaults"} & set(launch.argv)
    assert not list(launch.folder.glob("*.conf"))


# --- the document ------------------------------------------------------------------------------------------------------


def test_the_environment_of_the_driver_reaches_it_wherever_it_runs(make: Make) -> None:
    stream = a_stream(env={"COLOUR": "blue"})
    assert make(stream, order=Order("t1")).env["COLOUR"] == "blue"
    launch = make(stream, order=Order("t2"), kind="yarn", host="yarn", extra='{"deploy-mode": "cluster"}')
    assert "spark.yarn.appMasterEnv.COLOUR=blue" in launch.argv


def test_the_driver_gets_its_document_as_a_file(make: Make) -> None:
    launch = make(a_stream(lanes=3, options={"text": "ü"}))
    assert launch.argv[-1] == f"@{launch.folder / 'stream.json'}"
    config = from_json((launch.folder / "stream.json").read_text())
    assert (config.lanes, config.token, config.options) == (3, "t1", {"text": "ü"})
    assert config.accepted_loss == ()


def test_lost_data_is_accepted_only_by_order(make: Make) -> None:
    ranges = (Lost("orders_in", 0, 5, 9), Lost("orders_out", 1, 7, None))
    launch = make(order=Order("t2", accepted_loss=ranges))
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
    code = f"import sys; sys.path.insert(0, {archive!r}); import ckpt_stream.config as c; print(c.__file__)"
    found = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.startswith(archive)


# --- the command -------------------------------------------------------------------------------------------------------


def test_the_command_holds_what_stream_and_runner_say(make: Make) -> None:
    launch = make(a_stream(spark_conf={"spark.executor.memory": "2g", "spark.yarn.tags": "mine"}))
    assert (option(launch, "--master"), option(launch, "--name")) == ("local[*]", "orders")
    confs = [launch.argv[i + 1] for i, part in enumerate(launch.argv) if part == "--conf"]
    assert confs == ["spark.executor.memory=2g", "spark.yarn.tags=t1"]
    assert Path(launch.argv[0]).name == "spark-submit"
    assert Path(launch.argv[0]).is_absolute()


def test_the_connector_comes_from_the_stream_the_deployment_or_a_download(make: Make, settings: Settings) -> None:
    own = make(a_stream(packages=["g:a:1"]), order=Order("t1"))
    assert (option(own, "--packages"), option(own, "--jars")) == ("g:a:1", None)
    deployed = make(order=Order("t2"))
    assert (option(deployed, "--packages"), option(deployed, "--jars")) == (None, "/jars/kafka.jar")
    download = make(order=Order("t3"), settings=replace(settings, spark_jars=()))
    assert re.fullmatch(
        r"org\.apache\.spark:spark-sql-kafka-0-10_2\.13:\d+\.\d+\.\d+", option(download, "--packages") or ""
    )


def test_workers_of_a_local_master_run_the_python_that_airflow_runs(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert make(order=Order("t1")).env == {"PYSPARK_PYTHON": sys.executable}
    assert make(order=Order("t2"), host="spark://m", port=7077).env == {}


def test_a_folder_is_never_used_by_two_runs(make: Make) -> None:
    make()
    with pytest.raises(FileExistsError):
        make()


def test_a_worker_without_spark_says_what_to_install(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(CkptError, match=r"spark-submit is not on the PATH.*pip install"):
        make()
