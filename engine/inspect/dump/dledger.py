"""The entries of a DLedger store, one after the other, each with the record in it; blanks and damage. Reads alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.format import message
from engine.format.dledger_entry import HEAD_SIZE, DLedgerEntry, decode
from engine.inspect.dump.dump import BLANK, DAMAGE, dump_log_batches
from engine.log.scan import RecordBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.files.disk import Disk
    from engine.format.message import StoredMessage
    from engine.inspect.store.survey import StoreFiles

ENTRY, BARE = "entry", "record"


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One thing among the entries, by physical offset and length in bytes.

    `kind`: ENTRY, BARE (a record whose header is damaged, which is DAMAGE before it), BLANK or DAMAGE (with `reason`).
    `breaks`: why the entry does not follow the one before it.
    """

    kind: str
    offset: int
    length: int
    entry: DLedgerEntry | None = None
    message: StoredMessage | None = None
    reason: str | None = None
    path: str | None = None
    breaks: str | None = None

    @property
    def wrong(self) -> bool:
        """Whether it is no sound entry at its place."""
        return self.kind == DAMAGE or self.breaks is not None

    def to_json(self) -> dict[str, Any]:
        """One line."""
        line: dict[str, Any] = {"kind": self.kind, "offset": self.offset, "length": self.length}
        if self.entry is not None:
            entry = self.entry
            line |= {
                "index": entry.index, "term": entry.term, "magic": entry.magic, "channel": entry.channel,
                "chainCrc": entry.chain_crc, "bodyCrc": entry.body_crc,
            }  # fmt: skip
        if self.message is not None:
            one = self.message
            line |= {
                "physicalOffset": one.physical_offset, "topic": one.topic, "queueId": one.queue_id,
                "queueOffset": one.queue_offset, "storeTimestamp": one.store_timestamp,
            }  # fmt: skip
        if self.reason is not None:
            line |= {"reason": self.reason, "file": self.path}
        return line if self.breaks is None else line | {"breaks": self.breaks}


def dump_entries(
    disk: Disk, files: StoreFiles, *, start: int | None = None, end: int | None = None
) -> Iterator[EntryRow]:
    """The entries from the physical offset `start` up to `end`; it continues after damage. None of a plain store.

    Raises:
        StorageError.
    """
    first = next((one.offset for one in files.log if one.in_entries), None)
    if first is None:
        return
    before: DLedgerEntry | None = None
    apart = False
    for item in dump_log_batches(disk, files, start=max(first, start or first), end=end):
        if not isinstance(item, RecordBatch):
            apart = apart or item.kind == DAMAGE
            yield EntryRow(item.kind, item.offset, item.length, reason=item.reason, path=item.path)
            continue
        for i, row in enumerate(item.rows):
            record = message.decode(item.record(i))
            if row.position < HEAD_SIZE or not (i or item.lead):
                apart = True
                yield EntryRow(BARE, item.offset(i), row.size, message=record)
                continue
            entry = decode(item.buffer, row.position - HEAD_SIZE)
            breaks = None if before is None else _breaks(before, entry, apart)
            yield EntryRow(ENTRY, item.offset(i) - HEAD_SIZE, entry.size, entry, record, breaks=breaks)
            before, apart = entry, False


def _breaks(one: DLedgerEntry, two: DLedgerEntry, apart: bool) -> str | None:
    next_index = two.index > one.index if apart else two.index == one.index + 1
    if next_index and two.term >= one.term:
        return None
    return f"index {two.index} of term {two.term} after index {one.index} of term {one.term}"


__all__ = ["BARE", "BLANK", "DAMAGE", "ENTRY", "EntryRow", "dump_entries"]
