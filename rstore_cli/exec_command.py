"""`consume --exec`: a program for each message, which says by its exit code whether it has consumed it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
from typing import TYPE_CHECKING

from engine.errors import InvalidArgument, from_os_error
from rstore_cli.render import printable

if TYPE_CHECKING:
    from engine.client.messages import ReceivedMessage

PREFIX = "RSTORE_MESSAGE_"
"""Of the environment variables that tell of the message."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class MessageProgram:
    """A program and its arguments. No shell has a say in it.

    Args:
        words: as on the command line, quoted as for a shell.

    Raises:
        InvalidArgument: there is no such program.
    """

    def __init__(self, words: str) -> None:
        try:
            self._words = shlex.split(words)
        except ValueError as error:
            raise InvalidArgument(f"--exec {printable(words)}: {str(error).lower()}") from None
        if not self._words or shutil.which(self._words[0]) is None:
            name = printable(self._words[0]) if self._words else "''"
            raise InvalidArgument(f"--exec: there is no program {name}", hint="a path, or a name in PATH")

    async def run(self, message: ReceivedMessage) -> int:
        """Its exit code; below 0: the signal that ended it. It is killed where this is cancelled.

        Raises:
            StorageError: it can't be started.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words, stdin=asyncio.subprocess.PIPE, env={**os.environ, **variables(message)}
            )
        except OSError as error:
            raise from_os_error(error, "starting a program", self._words[0]) from None
        try:
            await process.communicate(message.body)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return process.returncode


def variables(message: ReceivedMessage) -> dict[str, str]:
    """The environment variables that tell of a message. A property is `RSTORE_MESSAGE_PROPERTY_<its name>`.

    A property whose name is no name of a variable is not told, nor one with a NUL in its value.
    """
    told = {
        "TOPIC": message.topic,
        "BROKER": message.queue.broker,
        "QUEUE": str(message.queue.queue_id),
        "OFFSET": str(message.queue_offset),
        "ID": message.id,
        "KEYS": " ".join(message.keys),
        "TAGS": message.tags or "",
        "BORN_TIME": str(message.stored.born_timestamp),
        "STORE_TIME": str(message.stored.store_timestamp),
        "RECONSUME_TIMES": str(message.reconsume_times),
        **{f"PROPERTY_{name}": value for name, value in message.properties.items() if _NAME.fullmatch(name)},
    }
    return {PREFIX + name: value for name, value in told.items() if "\0" not in value}
