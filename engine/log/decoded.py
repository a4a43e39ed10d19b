"""Stored records, and the items of a batch, as objects: many by a native (`engine.log.kernels.objects`).

The plain functions, `engine.format.message.decode` and `engine.format.batch.decode`, make the same. A native stops at a
record that is not plain (IPv6 hosts, a record of 5.x, damage), and goes on after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from engine.format import properties
from engine.format.batch import BatchItem
from engine.format.batch import decode as decode_items
from engine.format.buffers import Buffer
from engine.format.message import StoredMessage, decode, text_of, v4_host
from engine.log.natives import ITEMS, PROPERTIES, TEXT_PROPERTIES

_Value = TypeVar("_Value")
_ITEM = 256
"""Bytes that an item of a batch has, about."""
_KNOWN = 1024
"""Hosts, or topics, that are remembered."""


class ReadMessage(StoredMessage):
    """A record as it lies in the log, of many that were read together."""

    __slots__ = ()

    @property
    def properties(self) -> dict[str, str]:
        """The properties, in stored order."""
        parse = PROPERTIES.after(1)
        pairs: dict[str, str] | None = None if parse is None else parse(self.properties_raw, None)
        return super().properties if pairs is None else pairs


def parsed(text: str) -> dict[str, str]:
    """As `engine.format.properties.parse`."""
    native = TEXT_PROPERTIES.after(1)
    pairs: dict[str, str] | None = None if native is None else native(text, None)
    return properties.parse(text) if pairs is None else pairs


class _Memo(dict[bytes, _Value]):
    """What bytes mean, made once."""

    def __init__(self, make: Callable[[bytes], _Value]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, raw: bytes) -> _Value:
        if len(self) >= _KNOWN:
            self.clear()
        made = self[raw] = self._make(raw)
        return made


_HOSTS: Final = _Memo(v4_host)
_TOPICS: Final = _Memo(text_of)


def decoded(
    buffer: memoryview, base: int, offsets: Sequence[int], sizes: Sequence[int], native: Callable[..., Any]
) -> list[StoredMessage]:
    """Records in one piece of the log. Raises FormatError: one is none; `offset` is within the record.

    Args:
        buffer: the piece.
        base: its physical offset.
        offsets: physical offset of each record.
        sizes: bytes of each.
        native: `MESSAGES`.
    """
    out: list[StoredMessage] = []
    while native(buffer, base, offsets, sizes, ReadMessage, _HOSTS, _TOPICS, out, len(out)) < len(sizes):
        at = offsets[len(out)] - base
        out.append(decode(buffer[at : at + sizes[len(out)]]))
    return out


def decoded_items(frame: Buffer) -> Sequence[BatchItem]:
    """The items of a batch. Raises FormatError as `engine.format.batch.decode`."""
    native = ITEMS.after(len(frame) // _ITEM)
    items: list[BatchItem] | None = None if native is None else native(frame, BatchItem, None)
    return decode_items(frame) if items is None else items
