"""The DLedger stores in fixtures/dledger, as real brokers left them, and entries made by hand."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.format.dledger_entry import HEAD_SIZE, NORMAL, DLedgerEntry, DLedgerIndexUnit, encode_blank
from engine.log.source import Segment
from tests.support.archives import extract
from tests.support.logs import MemoryLog

DIRECTORY = Path(__file__).parents[2] / "fixtures" / "dledger"
NAMES = sorted(path.name.removesuffix(".manifest.json") for path in DIRECTORY.glob("*.manifest.json"))


def manifest(name: str) -> dict[str, Any]:
    """How the store was made, and what was sent."""
    read: dict[str, Any] = json.loads((DIRECTORY / f"{name}.manifest.json").read_text(encoding="utf-8"))
    return read


def unpack(name: str, into: Path) -> Path:
    """The store at `into/NAME`."""
    packed = DIRECTORY / f"{name}.tar.xz"
    assert hashlib.sha256(packed.read_bytes()).hexdigest() == manifest(name)["sha256"]
    into.mkdir(parents=True, exist_ok=True)
    extract(packed, into)
    return into / name


def entry_files(store: Path) -> list[Path]:
    """The files of its entries, in order."""
    return sorted((store / "dledger-n0" / "data").iterdir())


class EntryLog(MemoryLog):
    """A log of entries over byte strings."""

    @property
    def segments(self) -> list[Segment]:
        """The segments, by offset."""
        return [replace(one, in_entries=True) for one in super().segments]


def entry(record: bytes, *, index: int, pos: int, term: int = 1) -> bytes:
    """A record in its entry; its physicalOffset is to be pos + 48 already."""
    head = DLedgerEntry(NORMAL, len(record) + HEAD_SIZE, index, term, pos, 0, 0, 0, len(record))
    return head.encode() + record


def put_in_entries(records: list[bytearray], size: int, start: int = 0) -> tuple[EntryLog, list[int]]:
    """Records as the entries of files of `size` bytes; and physical offsets of the entries."""
    from engine.format import message

    files: dict[int, bytearray] = {}
    places: list[int] = []
    base, data = start, bytearray()
    for index, record in enumerate(records):
        if len(data) + HEAD_SIZE + len(record) + 8 > size:
            files[base] = data + encode_blank(size - len(data))
            base, data = base + size, bytearray()
        pos = base + len(data)
        message.patch(record, 0, queue_offset=index, physical_offset=pos + HEAD_SIZE, store_timestamp=1_700_000_000_000)
        places.append(pos)
        data += entry(bytes(record), index=index, pos=pos)
    files[base] = data + bytes(size - len(data))
    return EntryLog(files), places


def write_index(store: Path) -> Path:
    """The index of a store's entries, which the fixtures leave out: the file's beginning, and a hole."""
    from engine.config import of_store
    from engine.files.disk import Disk
    from engine.inspect.check.entries import INDEX_FILE_SIZE
    from engine.inspect.dump.dledger import dump_entries
    from engine.inspect.store.survey import survey

    units = bytearray()
    for row in dump_entries(Disk(), survey(Disk(), of_store(store))):
        if row.entry is not None:
            one = row.entry
            assert one.index * 32 == len(units)
            units += DLedgerIndexUnit(one.magic, one.pos, one.size, one.index, one.term).encode()
    path = store / "dledger-n0" / "index" / f"{0:020d}"
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.write(units)
        file.truncate(INDEX_FILE_SIZE)
    return path
