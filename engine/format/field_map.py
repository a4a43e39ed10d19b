"""Which bytes of a structure are which field, with the value that they hold: bytes beside fields. No I/O.

Names are Apache's, as FORMAT.md has them. A structure that is cut off or damaged is mapped as far as its bytes go:
lengths are taken as they stand, and bounded by what is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.format import checkpoint, hosts, index_file, record, sysflag
from engine.format.quantities import moment
from engine.format.queue_unit import UNIT_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMES = {
    "total_size": "totalSize",
    "magic": "magicCode",
    "body_crc": "bodyCRC",
    "queue_id": "queueId",
    "flag": "flag",
    "queue_offset": "queueOffset",
    "physical_offset": "physicalOffset",
    "sys_flag": "sysFlag",
    "born_timestamp": "bornTimestamp",
    "born_host": "bornHost",
    "store_timestamp": "storeTimestamp",
    "store_host": "storeHost",
    "reconsume_times": "reconsumeTimes",
    "prepared_transaction_offset": "preparedTransactionOffset",
    "body_length": "bodyLength",
}
_TIMES = frozenset(("born_timestamp", "store_timestamp"))
_HEX = frozenset(("magic", "body_crc", "sys_flag"))
_SHOWN = 200
"""Characters of a text that are shown as a value."""


@dataclass(frozen=True, slots=True)
class FieldPlace:
    """A field: `start` and `length` in bytes from the structure's start, and its value in words."""

    name: str
    start: int
    length: int
    value: str

    def to_json(self) -> dict[str, int | str]:
        """For programs."""
        return {"name": self.name, "start": self.start, "length": self.length, "value": self.value}


def record_places(data: memoryview) -> list[FieldPlace]:
    """The fields of the record that `data` begins with; of a blank record those of its head."""
    if len(data) < record.BLANK_SIZE:
        return [FieldPlace("bytes", 0, len(data), "too few for a record")] if len(data) else []
    if record.magic_at(data) == record.BLANK_MAGIC:
        return list(_blank(data))
    return list(_record(data))


def _blank(data: memoryview) -> Iterator[FieldPlace]:
    size = record.total_size_at(data)
    yield FieldPlace("totalSize", 0, record.INT_SIZE, str(size))
    yield FieldPlace("magicCode", record.INT_SIZE, record.MAGIC_SIZE, "blank: end of the segment")
    rest = min(max(size, 0), len(data)) - record.BLANK_SIZE
    if rest > 0:
        yield FieldPlace("filling", record.BLANK_SIZE, rest, "whatever was there")


def _record(data: memoryview) -> Iterator[FieldPlace]:
    flags = record.sys_flag_at(data) if len(data) >= record.POSITION_SYS_FLAG + record.INT_SIZE else 0
    body_length = at = 0
    for name, start, width in record.head_places(flags):
        if start + width > len(data):
            return
        raw = data[start : start + width]
        if name.endswith("host"):
            value = str(hosts.decode(raw, 0, width == hosts.V6_SIZE))
        else:
            number = int.from_bytes(raw, "big", signed=True)
            value = _value(name, number)
            body_length = number if name == "body_length" else body_length
        yield FieldPlace(_NAMES[name], start, width, value)
        at = start + width
    magic = record.magic_at(data)
    parts = (
        ("body", 0),
        ("topic", record.topic_length_size(magic)),
        ("properties", record.PROPERTIES_LENGTH_SIZE),
    )
    for name, width in parts:
        length = body_length
        if width:
            if at + width > len(data):
                return
            length = int.from_bytes(data[at : at + width], "big", signed=width > 1)
            yield FieldPlace(f"{name}Length", at, width, str(length))
            at += width
        length = max(length, 0)
        there = min(length, len(data) - at)
        if there:
            raw = data[at : at + there]
            value = f"{length} bytes" if name == "body" else _text(raw)
            yield FieldPlace(name, at, there, value if there == length else f"{value} (cut off)")
        if there < length:
            return
        at += length


def _value(name: str, number: int) -> str:
    if name in _TIMES:
        return f"{number} ({moment(number)})" if number > 0 else str(number)
    if name in _HEX:
        text = f"{number & 0xFFFFFFFF:#010x}"
        if name == "magic":
            return f"{text} (a message)" if number & 0xFFFFFFFF in record.MAGICS else f"{text} (of no record)"
        return f"{text} ({', '.join(sysflag_words(number))})" if name == "sys_flag" and number else text
    return str(number)


_TRANSACTIONS = {
    sysflag.TRANSACTION_PREPARED: "prepared",
    sysflag.TRANSACTION_COMMIT: "committed",
    sysflag.TRANSACTION_ROLLBACK: "rolled back",
}


def sysflag_words(flags: int) -> list[str]:
    """What a sysFlag says."""
    words = [
        word
        for bit, word in (
            (sysflag.COMPRESSED, "compressed"),
            (sysflag.BORN_HOST_V6, "bornHost IPv6"),
            (sysflag.STORE_HOST_V6, "storeHost IPv6"),
        )
        if flags & bit
    ]
    kind = flags & sysflag.TRANSACTION_MASK
    if kind:
        words.append(_TRANSACTIONS[kind])
    return words or ["no flag that is known here"]


def _text(raw: memoryview) -> str:
    text = bytes(raw).decode("utf-8", "backslashreplace")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def unit_places(data: memoryview) -> list[FieldPlace]:
    """The fields of a queue unit."""
    return list(_numbers(data, _UNIT_NAMES, [code for _, code in UNIT_FIELDS]))


_UNIT_NAMES = ("physicalOffset", "size", "tagsCode")
_ENTRY_NAMES = ("keyHash", "physicalOffset", "timeDiff", "previous")
_HEADER_NAMES = ("beginTimestamp", "endTimestamp", "beginPhyOffset", "endPhyOffset", "hashSlotCount", "indexCount")
_CHECKPOINT_NAMES = ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp")
assert len(_UNIT_NAMES) == len(UNIT_FIELDS)


def index_header_places(data: memoryview) -> list[FieldPlace]:
    """The fields of an index file's header."""
    return list(_numbers(data, _HEADER_NAMES, (">i8",) * 4 + (">i4",) * 2))


def index_entry_places(data: memoryview) -> list[FieldPlace]:
    """The fields of an index entry."""
    return list(_numbers(data, _ENTRY_NAMES, [code for _, code in index_file.ENTRY_FIELDS]))


def checkpoint_places(data: memoryview) -> list[FieldPlace]:
    """The fields of the checkpoint."""
    return list(_numbers(data[: checkpoint.FIELDS_SIZE], _CHECKPOINT_NAMES, (">i8",) * 3))


def _numbers(data: memoryview, names: tuple[str, ...], codes: list[str] | tuple[str, ...]) -> Iterator[FieldPlace]:
    at = 0
    for name, code in zip(names, codes, strict=True):
        width = int(code[-1])
        if at + width > len(data):
            return
        number = int.from_bytes(data[at : at + width], "big", signed=True)
        words = f"{number} ({moment(number)})" if name.endswith("Timestamp") and number > 0 else str(number)
        yield FieldPlace(name, at, width, words)
        at += width
