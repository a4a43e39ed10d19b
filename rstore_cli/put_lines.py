"""The lines of `put --jsonl`: opened, and each made a message of."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import InvalidArgument, from_os_error
from engine.format.topic_rules import refused_by_client
from rstore_cli.messages import from_json
from rstore_cli.render import printable

if TYPE_CHECKING:
    from engine.format.hosts import Host
    from engine.format.message import Message


def open_lines(stack: ExitStack, name: str) -> Iterable[str]:
    """The lines of a file, closed with the stack; "-" is stdin. Raises StorageError."""
    if name == "-":
        return sys.stdin
    try:
        return stack.enter_context(Path(name).open(encoding="utf-8"))
    except OSError as error:
        raise from_os_error(error, "reading messages", name) from None


def parsed(
    lines: Iterable[str],
    name: str,
    topic: str | None,
    queue_id: int | None,
    store_host: Host,
    hint: str = "the lines before it were put; correct it and put the rest",
) -> Iterator[Message]:
    """The messages that the lines stand for.

    Args:
        lines: JSON objects, as `get` prints them.
        name: the file's, for errors.
        topic: wins over the lines' own; None: each names its own.
        queue_id: likewise.
        store_host: where a line has none.
        hint: of an error, what became of the lines before.

    Raises:
        InvalidArgument: a line that is none, or a topic that Apache's client refuses; it names the line.
    """
    number = 0
    try:
        for number, line in enumerate(lines, 1):  # noqa: B007 - named in the error below
            if not line.strip():
                continue
            now = time.time_ns() // 1_000_000
            message = from_json(json.loads(line), topic=topic, queue_id=queue_id, now_ms=now, store_host=store_host)
            if message is not None:
                wrong = refused_by_client(message.topic)
                if wrong is not None:
                    raise InvalidArgument(printable(wrong.rstrip(".")))
                yield message
    except json.JSONDecodeError as error:
        raise _at_line(number, f"not JSON: {error.msg}", name, hint) from None
    except UnicodeDecodeError:
        raise _at_line(number + 1, "not UTF-8", name, hint) from None
    except InvalidArgument as error:
        raise _at_line(number, error.message, name, error.hint or hint) from None


def _at_line(number: int, what: str, name: str, hint: str) -> InvalidArgument:
    return InvalidArgument(f"line {number}: {what}", path="stdin" if name == "-" else name, hint=hint)
