"""Where the key of a repository comes from: a file, a program, the environment. The key itself is kept nowhere."""

from __future__ import annotations

import os
import shlex
import subprocess

from engine.backup.keys import demand_secret
from engine.dataclass import dataclass
from engine.errors import InvalidArgument, StorageError, from_os_error
from engine.files.disk import Disk

KEY_VARIABLE = "RSTORE_REPO_KEY"
"""The environment variable that may hold the key."""
_KEY_TIME_S = 60
_LARGEST_KEY = 65536


@dataclass(frozen=True, slots=True)
class KeySource:
    """Of a file, else of a program, else of RSTORE_REPO_KEY: asked where the key is needed. It holds no key.

    Attributes:
        file: the path, on the machine that asks.
        command: the program with its arguments, as a shell would split them; no shell has a say in it.
    """

    file: str | None = None
    command: str | None = None

    def secret(self) -> bytes | None:
        """The key; None: none is given.

        Raises:
            InvalidArgument: both are given, or it is too short. StorageError: it can't be read.
        """
        if self.file is not None and self.command is not None:
            raise InvalidArgument("--key-file excludes --key-command")
        if self.file is not None:
            return demand_secret(Disk().read_file(self.file, _LARGEST_KEY))
        if self.command is not None:
            return demand_secret(_printed(self.command))
        from_environment = os.environ.get(KEY_VARIABLE)
        return None if from_environment is None else demand_secret(from_environment.encode())


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
