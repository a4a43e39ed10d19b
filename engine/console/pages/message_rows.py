"""Messages as rows of a page: with as much as a session may see, and as many as a page holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.format.message_json import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.format.message import StoredMessage

LARGEST = 8 << 20
"""Bytes of messages on a page, as stored and as shown."""


def message_row(message: StoredMessage, *, redact: bool) -> dict[str, Any]:
    """A message as `--json` prints it. `redact`: without its body and the values of its properties."""
    row = to_json(message, redact=redact, decompress=True)
    if redact:
        row["properties"] = dict.fromkeys(row["properties"], "(redacted)")
    return {**row, "crcOk": message.crc_ok}


def bounded_rows(messages: Iterable[StoredMessage], *, redact: bool) -> tuple[list[dict[str, Any]], bool]:
    """Rows of the first messages, one at least; and whether others are left out, which are not read."""
    rows: list[dict[str, Any]] = []
    size = 0
    for message in messages:
        row = message_row(message, redact=redact)
        size += message.total_size + len(row.get("body", "")) + len(row.get("bodyBase64", ""))
        if size > LARGEST and rows:
            return rows, True
        rows.append(row)
    return rows, False
