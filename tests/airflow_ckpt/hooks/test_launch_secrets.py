"""The secrets of a launch are in one file that only its owner can read, and a launch is what the DAG declares."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import asdict
from pathlib import Path

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.hooks.settings import Settings
from airflow_ckpt.runners.base import Launch
from airflow_ckpt.runners.launch_note import LAUNCH_NOTE, read_launch
from airflow_ckpt.runners.process import ProcessRunner
from airflow_ckpt.streams.driver_state import Handle
from airflow_ckpt.streams.preflight import PREFLIGHT_KINDS
from airflow_ckpt.streams.restart_strategies import NoRestart
from airflow_ckpt.supervision.control import StreamControl
from airflow_ckpt.supervision.intent_files import INTENTS
from airflow_ckpt.supervision.launch_request import LaunchRequest
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.machine.application_input import with_secrets
from ckpt_stream.protocol.settings.config import from_json
from ckpt_stream.protocol.settings.input_names import SECRETS_PROPERTY
from tests.airflow_ckpt.hooks.launches import KAFKA, Make, option
from tests.airflow_ckpt.supervision.samples import a_stream, an_intent

pytestmark = pytest.mark.unit


def as_java_reads(line: str) -> tuple[str, str]:
    """Name and value of one line of a properties file, by the rules of java.util.Properties."""
    assert line.isascii()
    name, _, value = line.partition("=")
    named = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}

    def plain(found: re.Match[str]) -> str:
        text = found.group(1)
        return chr(int(text[1:], 16)) if text[0] == "u" and len(text) == 5 else named.get(text, text)

    return name, re.sub(r"\\(u[0-9a-fA-F]{4}|.)", plain, value.lstrip())


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
    assert stat.S_IMODE((launch.folder / LAUNCH_NOTE).stat().st_mode) == 0o600
    assert settings.work_folder.stat().st_mode & 0o022 == 0
    noted = read_launch(settings.work_folder, "t1")
    assert noted is not None
    assert (noted.argv, noted.env, noted.stream, noted.job) == (
        launch.argv, launch.env, json.loads(json.dumps(stream.as_dict())), False,
    )  # fmt: skip
    make(stream, order=LaunchRequest("t2", document={"name": "verify"}))
    job = read_launch(settings.work_folder, "t2")
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
        StreamAccess(stream, files, None, runner),
        lambda order: make(stream, order=order, kafka=KAFKA),
        "dag.resume run",
    )
    control.resume(control.look_before_start(), allow=PREFLIGHT_KINDS)

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
