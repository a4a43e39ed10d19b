"""A format string of `consume --format`, as kcat has them, and the bytes that it makes of a message."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from engine.errors import InvalidArgument
from engine.format import properties
from rstore_cli.render import printable

if TYPE_CHECKING:
    from engine.client.messages import ReceivedMessage

Piece = Callable[["ReceivedMessage"], bytes]

_ESCAPES: Mapping[str, str] = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\", "%": "%"}
_TOKEN = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)


def _text(of: Callable[[ReceivedMessage], object]) -> Piece:
    return lambda message: str(of(message)).encode("utf-8", "surrogateescape")


def _keys(message: ReceivedMessage) -> bytes:
    return message.properties.get(properties.KEYS, "").encode("utf-8", "surrogateescape")


TOKENS: Mapping[str, tuple[str, Piece]] = {
    "s": ("body", lambda message: message.body),
    "S": ("its bytes", _text(lambda message: len(message.body))),
    "k": ("keys", _keys),
    "K": ("their bytes", _text(lambda message: len(_keys(message)))),
    "t": ("topic", _text(lambda message: message.topic)),
    "p": ("queue", _text(lambda message: message.queue.queue_id)),
    "o": ("queue offset", _text(lambda message: message.queue_offset)),
    "T": ("store time, ms", _text(lambda message: message.stored.store_timestamp)),
    "h": ("properties", _text(lambda message: ",".join(f"{k}={v}" for k, v in message.properties.items()))),
    "b": ("broker", _text(lambda message: message.queue.broker)),
    "g": ("tags", _text(lambda message: message.tags or "")),
    "i": ("id", _text(lambda message: message.id)),
}
"""What a letter after % stands for. Those of kcat, and %b, %g and %i."""


def parse_format(text: str) -> Piece:
    """What a format string makes of a message.

    Raises:
        InvalidArgument: a letter after % or \\ that stands for nothing.
    """
    pieces: list[Piece] = []
    at = 0
    for match in _TOKEN.finditer(text):
        pieces.append(_fixed(text[at : match.start()]))
        at = match.end()
        letter, escape = match[1], match[2]
        if letter in TOKENS:
            pieces.append(TOKENS[letter][1])
        elif letter == "%":
            pieces.append(_fixed("%"))
        elif escape is not None and len(escape) == 3:
            pieces.append(_bytes(bytes.fromhex(escape[1:])))
        elif escape in _ESCAPES:
            pieces.append(_fixed(_ESCAPES[escape]))
        else:
            known = ", ".join(f"%{name} {what}" for name, (what, _) in TOKENS.items())
            raise InvalidArgument(f"--format: {printable(match[0])} stands for nothing", hint=known)
    pieces.append(_fixed(text[at:]))
    return lambda message: b"".join(piece(message) for piece in pieces)


def _fixed(text: str) -> Piece:
    return _bytes(text.encode("utf-8", "surrogateescape"))


def _bytes(data: bytes) -> Piece:
    return lambda message: data
