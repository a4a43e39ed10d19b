"""The epoch file of a RocketMQ 5 broker under a controller: lines of text (FORMAT.md "Epoch file").

An epoch is the reign of one master: it begins at a physical offset, and ends where the next one begins. Brokers compare
their epochs to find where their logs have diverged.

Source: EpochFileCache, CheckpointFile.
"""

from __future__ import annotations

import re

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.format.hashing import body_crc
from engine.format.numbers import INT_MAX, LONG_MAX

LARGEST = 1 << 20
"""Bytes of a file that is read: some 30,000 epochs."""
UNCHECKED = 0
"""A CRC of this value is not compared. Source: CheckpointFile.NOT_CHECK_CRC_MAGIC_CODE."""

_NUMBER = re.compile(r"[0-9]{1,10}")
_ENTRY = re.compile(r"([0-9]{1,10})-([0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """An epoch, and the physical offset at which it begins."""

    epoch: int
    start_offset: int


def encode(entries: tuple[EpochEntry, ...]) -> bytes:
    """The whole file."""
    lines = "".join(f"{one.epoch}-{one.start_offset}\n" for one in entries).encode()
    return f"{len(entries)}\n{body_crc(lines)}\n".encode() + lines


def decode(data: bytes) -> tuple[EpochEntry, ...]:
    """The epochs, in the order of the file.

    Raises:
        FormatError: a line is no epoch (`offset`: its place), or their number or CRC is another.
    """
    if len(data) > LARGEST:
        raise FormatError(f"the epoch file has more than {LARGEST} bytes")
    try:
        lines = data.decode("ascii").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise FormatError("the epoch file is not text", offset=error.start) from None
    head = [_number(lines, number, what) for number, what in enumerate(("the number of epochs", "the CRC"))]
    at = sum(len(line) + 1 for line in lines[:2])
    entries = []
    for line in lines[2:]:
        match = _ENTRY.fullmatch(line)
        if match is None or int(match[1]) > INT_MAX or int(match[2]) > LONG_MAX:
            raise FormatError("a line of the epoch file is no EPOCH-OFFSET", offset=at)
        entries.append(EpochEntry(int(match[1]), int(match[2])))
        at += len(line) + 1
    if len(entries) != head[0]:
        raise FormatError(f"the epoch file has {len(entries)} epochs instead of {head[0]}")
    crc = body_crc("".join(f"{line}\n" for line in lines[2:]).encode())
    if head[1] not in (UNCHECKED, crc):
        raise FormatError(f"CRC mismatch in the epoch file: {crc} instead of {head[1]}")
    return tuple(entries)


def _number(lines: list[str], number: int, what: str) -> int:
    line = lines[number] if number < len(lines) else ""
    if not _NUMBER.fullmatch(line) or int(line) > INT_MAX:
        at = sum(len(before) + 1 for before in lines[:number])
        raise FormatError(f"line {number + 1} of the epoch file is not {what}", offset=at)
    return int(line)
