"""Which bytes of a record are which field, with the value that they hold: bytes beside fields. No I/O.

Names are Apache's, as FORMAT.md has them. A record that is cut off or damaged is mapped as far as its bytes go:
lengths are taken as they stand, and bounded by what is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.format import hosts, record, sysflag
from engine.format.quantities import moment

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
    """A field: `start` and `length` in bytes from the record's start, and its value in words."""

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
