"""Bodies and properties as `put` and `send` are given them on the command line."""

from __future__ import annotations

from pathlib import Path

from engine.errors import InvalidArgument, from_os_error
from rstore_cli._common import parse_size
from rstore_cli.render import printable

_PATTERN = bytes(range(ord("a"), ord("z") + 1))


def body_of(text: str | None, file: Path | None, size: str | None) -> bytes | None:
    """The body: --body, what --body-file has, or --size bytes; None: none of them is given.

    Raises:
        InvalidArgument: no size. StorageError: the file can't be read.
    """
    if text is not None:
        return text.encode("utf-8", "surrogateescape")
    if file is not None:
        try:
            return file.read_bytes()
        except OSError as error:
            raise from_os_error(error, "reading the body", file) from None
    if size is not None:
        length = parse_size(size, "--size")
        return (_PATTERN * (length // len(_PATTERN) + 1))[:length]
    return None


def properties_of(given: list[str] | None) -> dict[str, str]:
    """NAME=VALUE of each --property. Raises InvalidArgument."""
    named = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidArgument(f"--property {printable(text)}: not NAME=VALUE")
        named[name] = value
    return named
