"""Logs as a RocketMQ 5 broker with enabledAppendPropCRC=true writes them: each record ends with its property CRC."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from engine.format import message, property_crc
from engine.format.message import Message
from engine.format.record import BLANK_SIZE
from tests.support.logs import STORE_TIME


def room(put: Message, tail: bytes | None = None) -> bytearray:
    """The record of a message, with room for its property CRC (or `tail`) as the last of its properties."""
    separated = "".join(f"{name}\x01{value}\x02" for name, value in put.properties.items()).encode()
    return message.encode(put, separated + (bytes(property_crc.SIZE) if tail is None else tail))


def seal(record: bytearray) -> None:
    """Fill in the property CRC of a record that has everything else."""
    record[-property_crc.SIZE :] = property_crc.encode(property_crc.compute(record))


def write(root: Path, messages: Iterable[tuple[Message, bytes | None]], segment_size: int) -> list[tuple[int, int]]:
    """Write a log of these messages, each with what its properties end with; None: with their property CRC.

    Returns:
        Physical offset and size (bytes) of each record.
    """
    directory = root / "commitlog"
    directory.mkdir(parents=True)
    places: list[tuple[int, int]] = []
    counts: dict[tuple[str, int], int] = {}
    start, at = 0, 0
    file: BinaryIO = (directory / f"{start:020d}").open("wb")
    try:
        for number, (put, tail) in enumerate(messages):
            record = room(put, tail)
            if len(record) + BLANK_SIZE > segment_size - at:
                file.write(message.encode_blank(segment_size - at))
                file.truncate(segment_size)
                file.close()
                start, at = start + segment_size, 0
                file = (directory / f"{start:020d}").open("wb")
            queue = (put.topic, put.queue_id)
            place, counts[queue] = counts.get(queue, 0), counts.get(queue, 0) + 1
            message.patch(
                record, 0, queue_offset=place, physical_offset=start + at, store_timestamp=STORE_TIME + number
            )
            if tail is None:
                seal(record)
            file.write(record)
            places.append((start + at, len(record)))
            at += len(record)
        file.truncate(segment_size)
    finally:
        file.close()
    return places
