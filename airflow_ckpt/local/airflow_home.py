"""The files Airflow reads from its home: settings, keys, login and connections. Secrets are for the owner only."""

from __future__ import annotations

import base64
import configparser
import io
import json
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

USERNAME = "admin"
HOST = "127.0.0.1"

# Every process of one Airflow carries this variable, so that `stop` finds also those that left its session.
# AIRFLOW_HOME would not do: a user may export it in a shell, and that shell's other children are not ours to end.
OWNER_VARIABLE = "AIRFLOW_CKPT_OWNER"


@dataclass(frozen=True)
class Ports:
    """The ports that one Airflow listens on. The log servers have no switch to turn them off under `standalone`."""

    api: int
    worker_logs: int
    triggerer_logs: int

    def to_dict(self) -> dict[str, int]:
        return asdict(self)


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step; nobody but its owner can read it at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    new.replace(path)


def passwords_file(home: Path) -> Path:
    return home / "simple_auth_manager_passwords.json"


def password(home: Path) -> str:
    """The admin's password: made up on the first call for this home, the same ever after."""
    path = passwords_file(home)
    passwords: dict[str, str] = json.loads(path.read_text() or "{}") if path.exists() else {}
    if USERNAME not in passwords:
        passwords[USERNAME] = secrets.token_urlsafe(12)
        write_private(path, json.dumps(passwords) + "\n")
    return passwords[USERNAME]


def keys(home: Path) -> dict[str, str]:
    """The keys that encrypt connections and sign tokens: fixed per home, else a restart would log everybody out."""
    path = home / "keys.json"
    if not path.exists():
        generated = {
            "fernet": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "session": secrets.token_urlsafe(32),
            "jwt": secrets.token_urlsafe(32),
        }
        write_private(path, json.dumps(generated) + "\n")
    stored: dict[str, str] = json.loads(path.read_text())
    return stored


def settings(home: Path, *, dags: Path, ports: Ports, spark_jars: str = "") -> dict[str, dict[str, Any]]:
    """Everything in which this Airflow differs from the defaults."""
    key = keys(home)
    url = f"http://{HOST}:{ports.api}"
    return {
        "core": {
            "dags_folder": dags,
            "load_examples": False,
            "executor": "LocalExecutor",
            # The default of 32 idle worker processes is for servers.
            "parallelism": 8,
            "fernet_key": key["fernet"],
            "simple_auth_manager_users": f"{USERNAME}:admin",
            "simple_auth_manager_passwords_file": passwords_file(home),
            "execution_api_server_url": f"{url}/execution/",
        },
        # SQLite has one writer at a time, and the others give up after 5 s. No longer: Airflow's API server notes an order in
        # its database while it serves nobody else, the one who has the database among them, and stands still until then.
        "database": {"sql_alchemy_conn": f"sqlite:///{home / 'airflow.db'}"},
        "api": {"host": HOST, "port": ports.api, "base_url": url, "secret_key": key["session"], "workers": 1},
        "api_auth": {"jwt_secret": key["jwt"]},
        "logging": {
            "base_log_folder": home / "logs",
            "worker_log_server_port": ports.worker_logs,
            "trigger_log_server_port": ports.triggerer_logs,
        },
        # A changed or new DAG file is seen within seconds instead of minutes.
        "dag_processor": {"refresh_interval": 5, "min_file_process_interval": 5},
        "usage_data_collection": {"enabled": False},
        # People sit and watch: look at streams more often than a server would.
        "airflow_ckpt": {"spark_jars": spark_jars, "poll_interval": 2},
    }


def write_settings(home: Path, *, dags: Path, ports: Ports, spark_jars: str = "") -> Path:
    """Write `airflow.cfg`, so that `AIRFLOW_HOME=<home> airflow ...` typed by hand sees the same Airflow."""
    parser = configparser.RawConfigParser()
    for section, options in settings(home, dags=dags, ports=ports, spark_jars=spark_jars).items():
        # Airflow interpolates what it reads: a percent sign, as in a path, must be doubled.
        parser[section] = {name: str(value).replace("%", "%%") for name, value in options.items()}
    text = io.StringIO()
    parser.write(text)
    path = home / "airflow.cfg"
    write_private(path, text.getvalue())
    return path


def connections(kafka_config: Mapping[str, str], spark_master: str) -> dict[str, dict[str, Any]]:
    """The two connections every stream uses by default, in the form of `airflow connections import`."""
    return {
        "kafka_default": {"conn_type": "kafka", "extra": dict(kafka_config)},
        "spark_default": {"conn_type": "spark", "host": spark_master, "extra": {"deploy-mode": "client"}},
    }


def environment(
    home: Path,
    *,
    java_home: Path | None = None,
    jvm_options: str | None = None,
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of every process of this Airflow: the caller's, less what steers another Airflow or Spark."""
    steering = ("AIRFLOW__", "AIRFLOW_CONN_", "AIRFLOW_VAR_", "_AIRFLOW_")
    single = {"AIRFLOW_CONFIG", "AIRFLOW_API_APPS", "SPARK_HOME", "PYSPARK_DRIVER_PYTHON", "PYSPARK_SUBMIT_ARGS"}
    inherited = os.environ if base is None else base
    env = {name: value for name, value in inherited.items() if not name.startswith(steering) and name not in single}
    env["AIRFLOW_HOME"] = str(home)
    env[OWNER_VARIABLE] = str(home)
    # `standalone` looks up `airflow`, and the Spark hook `spark-submit`, on the PATH: both must be of this Python.
    programs = str(Path(sys.executable).parent)
    env["PATH"] = os.pathsep.join([programs, env.get("PATH", os.defpath)])
    env["PYSPARK_PYTHON"] = sys.executable
    env["PYTHONUNBUFFERED"] = "1"
    if jvm_options is not None:
        env.setdefault("SPARK_SUBMIT_OPTS", jvm_options)
    if java_home is not None:
        env["JAVA_HOME"] = str(java_home)
    # Tasks talk to the API server of this machine; a company proxy must not sit in between.
    local = [HOST, "localhost"]
    exempt = [host for host in env.get("NO_PROXY", env.get("no_proxy", "")).split(",") if host and host not in local]
    env["NO_PROXY"] = env["no_proxy"] = ",".join(exempt + local)
    return env
