"""Tables whose keys are objects, as fastjson writes them: `{"offsetTable":{{"queueId":0,…}:5,…}}`. It is no JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import orjson

from engine.errors import FormatError


def read(text: str, name: str) -> list[tuple[dict[str, Any], Any]]:
    """Keys and values of the table that a field holds.

    Raises:
        FormatError: there is none.
    """
    return split(text, name)[0]


def split(text: str, name: str) -> tuple[list[tuple[dict[str, Any], Any]], str]:
    """Keys and values of the table that a field holds, and the text with an empty table in its place.

    Raises:
        FormatError: there is none.
    """
    decoder, rows = json.JSONDecoder(), []
    try:
        start = at = text.index("{", text.index(f'"{name}"')) + 1
        while text[at] != "}":
            key, at = decoder.raw_decode(text, at)
            value, at = decoder.raw_decode(text, at + 1)
            if not isinstance(key, dict):
                raise TypeError("a key is no object")
            rows.append((key, value))
            at += text[at] == ","
    except (ValueError, TypeError, IndexError, RecursionError) as error:
        raise FormatError(f"malformed {name}: {error!r}") from None
    return rows, text[:start] + text[at:]


def write(rows: Iterable[tuple[Any, Any]]) -> bytes:
    """The table alone, without whitespace."""
    return b"{" + b",".join([orjson.dumps(key) + b":" + orjson.dumps(value) for key, value in rows]) + b"}"
