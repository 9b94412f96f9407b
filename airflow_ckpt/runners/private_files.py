"""Reads and writes the files of a driver's folder, which only their owner can read and write."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_ckpt.exceptions import NotPrivate
from ckpt_stream.protocol.settings.input_names import SECRETS_PROPERTY
from ckpt_stream.protocol.settings.secret_names import is_secret

SECRETS_FILE = "secrets.conf"
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")


def folder_of(root: Path, token: str) -> Path:
    """The folder of a driver. Only a plain name is accepted as token, never a path: another user may have written it."""
    if not _TOKEN.fullmatch(token):
        raise NotPrivate(
            f"{token!r} is not a driver's token: another program has written to the checkpoint's _ckpt folder."
        )
    return root / token


@contextmanager
def new_folder(root: Path, token: str) -> Iterator[Path]:
    """Make a new folder for a launch, which only its owner can enter. If the launch fails, the folder is deleted."""
    folder = folder_of(root, token)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    except BaseException:
        # Without a driver, no launcher would delete the secrets.
        shutil.rmtree(folder, ignore_errors=True)
        raise


def read_private(folder: Path, name: str) -> str | None:
    """Read a file in a driver's folder; None if there is no file. Raises NotPrivate if another user could have written it."""
    try:
        # The folder is opened once, so that it cannot be exchanged between the check and the read.
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise NotPrivate(f"{folder} is not a folder that this user can read: {e.strerror}.") from e
    try:
        # No other user can enter the folder, so the modes of its files, which depend on the umask, do not matter.
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
    """Raise NotPrivate if another user could create files in the folder."""
    _refuse_open_to(stat.S_IWGRP | stat.S_IWOTH, "go-w", folder.stat(), folder)


def _refuse_open_to(others: int, helps: str, about: os.stat_result, path: Path) -> None:
    if about.st_uid != os.geteuid():
        raise NotPrivate(
            f"{path} belongs to the user with id {about.st_uid} and not to this user ({os.geteuid()}): its content is not "
            "trusted. Run this as the user that Airflow runs drivers as."
        )
    if about.st_mode & others:
        raise NotPrivate(f"{path} is open to other users, so its content is not trusted: `chmod {helps} {path}`.")


def write_private(path: Path, text: str) -> None:
    """Create a file that only its owner can read, from the moment of its creation."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def write_secrets(folder: Path, kafka: Mapping[str, Any]) -> list[str]:
    """Write the secret Kafka settings into a properties file for spark-submit; without secrets there is no file."""
    secrets = {name: value for name, value in kafka.items() if is_secret(name)}
    if not secrets:
        return []
    path = folder / SECRETS_FILE
    # The backslash is the escape character of properties files.
    value = json.dumps(secrets).replace("\\", "\\\\")
    write_private(path, f"{SECRETS_PROPERTY}={value}\n")
    return [str(path)]
