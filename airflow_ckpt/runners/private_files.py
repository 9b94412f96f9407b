"""What a driver is given, and leaves behind, in files that only their owner can read and write."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_ckpt.runners.base import RunnerError
from ckpt_stream.config import SECRETS_PROPERTY
from ckpt_stream.security import is_secret

SECRETS_FILE = "secrets.conf"
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")


class NotPrivate(RunnerError):
    """A driver's file or folder is not this user's alone."""


def folder_of(root: Path, token: str) -> Path:
    """The folder of a driver. Its token is noted beside the checkpoint, where others may write: it is a name, never a path."""
    if not _TOKEN.fullmatch(token):
        raise NotPrivate(
            f"{token!r} is not a driver's token: another program has written to the checkpoint's _ckpt folder."
        )
    return root / token


def read_private(folder: Path, name: str) -> str | None:
    """A file of a driver's folder, None where there is none. Raises NotPrivate if another user could have written it."""
    try:
        # The folder is opened once: nothing can be put in its place between the check and the reading.
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise NotPrivate(f"{folder} is not a folder that this user can read: {e.strerror}.") from e
    try:
        # In a folder that no other user can enter, the modes of the files do not matter: those depend on a process's umask.
        _refuse_open_to(stat.S_IRWXG | stat.S_IRWXO, "go-rwx", os.fstat(inside), folder)
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=inside)
        except FileNotFoundError:
            return None
        except OSError as e:
            raise NotPrivate(f"{folder / name} is not a file that this user can read: {e.strerror}.") from e
        with open(file, encoding="utf-8") as opened:
            _refuse_open_to(0, "", os.fstat(file), folder / name)
            return opened.read()
    finally:
        os.close(inside)


def refuse_shared_folder(folder: Path) -> None:
    """Raise NotPrivate if another user could put something into the folder."""
    _refuse_open_to(stat.S_IWGRP | stat.S_IWOTH, "go-w", folder.stat(), folder)


def _refuse_open_to(others: int, helps: str, about: os.stat_result, path: Path) -> None:
    if about.st_uid != os.geteuid():
        raise NotPrivate(
            f"{path} belongs to the user with id {about.st_uid}, and not to the one who asks ({os.geteuid()}): its content is "
            "not trusted. Run this as the user that Airflow runs drivers as."
        )
    if about.st_mode & others:
        raise NotPrivate(f"{path} is open to other users, so its content is not trusted: `chmod {helps} {path}`.")


def write_private(path: Path, text: str) -> None:
    """Write a new file; nobody but its owner can read it at any moment."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def write_secrets(folder: Path, kafka: Mapping[str, Any]) -> list[str]:
    """The secret ones of Kafka's settings as a properties file for spark-submit; no file where there are none."""
    secrets = {name: value for name, value in kafka.items() if is_secret(name)}
    if not secrets:
        return []
    path = folder / SECRETS_FILE
    # In a properties file the backslash is the escape character.
    value = json.dumps(secrets).replace("\\", "\\\\")
    write_private(path, f"{SECRETS_PROPERTY}={value}\n")
    return [str(path)]
