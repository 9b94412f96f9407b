"""The files that Airflow reads from its home (settings, keys and login), and the environment of its processes."""

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

from airflow_ckpt.local.private_file import replace_private

USERNAME = "admin"
HOST = "127.0.0.1"

# Every process of one Airflow has this variable, so that `stop` also finds processes outside its session. AIRFLOW_HOME cannot be
# used for this: a user may export it in a shell, and the other children of that shell must not be ended.
OWNER_VARIABLE = "AIRFLOW_CKPT_OWNER"


@dataclass(frozen=True)
class Ports:
    """The ports of one Airflow. Under `standalone`, the log servers cannot be switched off."""

    api: int
    worker_logs: int
    triggerer_logs: int

    def to_dict(self) -> dict[str, int]:
        return asdict(self)


def passwords_file(home: Path) -> Path:
    return home / "simple_auth_manager_passwords.json"


def password(home: Path) -> str:
    """The admin's password, which the first call for this home generates."""
    path = passwords_file(home)
    passwords: dict[str, str] = json.loads(path.read_text() or "{}") if path.exists() else {}
    if USERNAME not in passwords:
        passwords[USERNAME] = secrets.token_urlsafe(12)
        replace_private(path, json.dumps(passwords) + "\n")
    return passwords[USERNAME]


def keys(home: Path) -> dict[str, str]:
    """The keys that encrypt connections and sign tokens; fixed per home, because a restart must not log users out."""
    path = home / "keys.json"
    if not path.exists():
        generated = {
            "fernet": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "session": secrets.token_urlsafe(32),
            "jwt": secrets.token_urlsafe(32),
        }
        replace_private(path, json.dumps(generated) + "\n")
    stored: dict[str, str] = json.loads(path.read_text())
    return stored


def settings(home: Path, *, dags: Path, ports: Ports, spark_jars: str = "") -> dict[str, dict[str, Any]]:
    """Every setting in which this Airflow differs from the defaults."""
    key = keys(home)
    url = f"http://{HOST}:{ports.api}"
    return {
        "core": {
            "dags_folder": dags,
            "load_examples": False,
            "executor": "LocalExecutor",
            # Fewer worker processes than the default of 32, which is meant for servers.
            "parallelism": 8,
            "fernet_key": key["fernet"],
            "simple_auth_manager_users": f"{USERNAME}:admin",
            "simple_auth_manager_passwords_file": passwords_file(home),
            "execution_api_server_url": f"{url}/execution/",
        },
        # SQLite has one writer at a time, and other writers fail after 5 s. A longer timeout would not help: while Airflow's API
        # server waits for the database, it answers no requests, not even those of the process that locks the database.
        "database": {"sql_alchemy_conn": f"sqlite:///{home / 'airflow.db'}"},
        "api": {"host": HOST, "port": ports.api, "base_url": url, "secret_key": key["session"], "workers": 1},
        "api_auth": {"jwt_secret": key["jwt"]},
        "logging": {
            "base_log_folder": home / "logs",
            "worker_log_server_port": ports.worker_logs,
            "trigger_log_server_port": ports.triggerer_logs,
        },
        # Changed and new DAG files are read within seconds instead of minutes.
        "dag_processor": {"refresh_interval": 5, "min_file_process_interval": 5},
        "usage_data_collection": {"enabled": False},
        # A user is watching: check streams more often than on a server.
        "airflow_ckpt": {"spark_jars": spark_jars, "poll_interval": 2},
    }


def write_settings(home: Path, *, dags: Path, ports: Ports, spark_jars: str = "") -> Path:
    """Write `airflow.cfg`, so that a user's `AIRFLOW_HOME=<home> airflow ...` uses the same Airflow."""
    parser = configparser.RawConfigParser()
    for section, options in settings(home, dags=dags, ports=ports, spark_jars=spark_jars).items():
        # Airflow interpolates percent signs in this file, so a percent sign in a value, such as a path, must be doubled.
        parser[section] = {name: str(value).replace("%", "%%") for name, value in options.items()}
    text = io.StringIO()
    parser.write(text)
    path = home / "airflow.cfg"
    replace_private(path, text.getvalue())
    return path


def environment(
    home: Path,
    *,
    java_home: Path | None = None,
    jvm_options: str | None = None,
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of every process of this Airflow: the caller's environment without settings of another Airflow or Spark."""
    prefixes = ("AIRFLOW__", "AIRFLOW_CONN_", "AIRFLOW_VAR_", "_AIRFLOW_")
    names = {"AIRFLOW_CONFIG", "AIRFLOW_API_APPS", "SPARK_HOME", "PYSPARK_DRIVER_PYTHON", "PYSPARK_SUBMIT_ARGS"}
    inherited = os.environ if base is None else base
    env = {name: value for name, value in inherited.items() if not name.startswith(prefixes) and name not in names}
    env["AIRFLOW_HOME"] = str(home)
    env[OWNER_VARIABLE] = str(home)
    # `standalone` finds `airflow` on the PATH, and the Spark hook finds `spark-submit` there: both must belong to this Python.
    programs = str(Path(sys.executable).parent)
    env["PATH"] = os.pathsep.join([programs, env.get("PATH", os.defpath)])
    env["PYSPARK_PYTHON"] = sys.executable
    env["PYTHONUNBUFFERED"] = "1"
    if jvm_options is not None:
        env.setdefault("SPARK_SUBMIT_OPTS", jvm_options)
    if java_home is not None:
        env["JAVA_HOME"] = str(java_home)
    # Tasks connect to the API server on this machine, which a proxy cannot reach.
    local = [HOST, "localhost"]
    exempt = [host for host in env.get("NO_PROXY", env.get("no_proxy", "")).split(",") if host and host not in local]
    env["NO_PROXY"] = env["no_proxy"] = ",".join(exempt + local)
    return env
