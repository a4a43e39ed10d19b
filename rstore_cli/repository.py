"""Which repository a command works in, and the key that opens it."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import InvalidArgument, StorageError, from_os_error

if TYPE_CHECKING:
    from engine.backup.repository import Repository

KEY_VARIABLE = "RSTORE_REPO_KEY"
"""The environment variable that may hold the key."""
_KEY_TIME_S = 60
_LARGEST_KEY = 65536

Repo = Annotated[
    str | None,
    typer.Option(
        "--repo",
        metavar="LOCATION",
        envvar="RSTORE_REPO",
        show_envvar=True,
        help="The repository: a directory, or s3://NAME/PREFIX, gs://…, az://….",
    ),
]
KeyFile = Annotated[
    Path | None, typer.Option("--key-file", metavar="FILE", help="File with the key of the repository.")
]
KeyCommand = Annotated[
    str | None,
    typer.Option("--key-command", metavar="COMMAND", help="Program that prints the key, with its arguments."),
]


def location_of(repo: str | None) -> str:
    """The location that was given. Raises InvalidArgument: none was."""
    if not repo:
        raise InvalidArgument("a repository is required", hint="--repo LOCATION, or RSTORE_REPO in the environment")
    return repo


def secret_of(key_file: Path | None, key_command: str | None) -> bytes | None:
    """The key: of the file, else of the program, else of RSTORE_REPO_KEY; None: none is given.

    Raises:
        InvalidArgument: both are given, or it is too short. StorageError: it can't be read.
    """
    from engine.backup.keys import demand_secret

    if key_file is not None and key_command is not None:
        raise InvalidArgument("--key-file excludes --key-command")
    if key_file is not None:
        from engine.files.disk import Disk

        return demand_secret(Disk().read_file(str(key_file), _LARGEST_KEY))
    if key_command is not None:
        return demand_secret(_printed(key_command))
    from_environment = os.environ.get(KEY_VARIABLE)
    return None if from_environment is None else demand_secret(from_environment.encode())


def open_repo(repo: str | None, key_file: Path | None, key_command: str | None) -> Repository:
    """The repository, open. Raises as `open_repository`, InvalidArgument, StorageError."""
    from engine.backup.objects.place import objects_at
    from engine.backup.repository import open_repository
    from engine.files.disk import Disk

    return open_repository(objects_at(Disk(), location_of(repo)), lambda: secret_of(key_file, key_command))


def _printed(command: str) -> bytes:
    """What a program prints; no shell has a say in it."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidArgument(f"--key-command: {error}") from None
    if not words:
        raise InvalidArgument("--key-command is empty")
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, timeout=_KEY_TIME_S, check=False)
    except subprocess.TimeoutExpired:
        raise StorageError(f"the program of --key-command ran longer than {_KEY_TIME_S} s", path=words[0]) from None
    except OSError as error:
        raise from_os_error(error, "running the program of --key-command", words[0]) from None
    if done.returncode:
        raise StorageError(f"the program of --key-command ended with exit code {done.returncode}", path=words[0])
    return done.stdout
