"""The files of a DLedger store: entries, their index, what the member of the group has noted; read, never changed.

`dledger-ID/` (ID: dLegerSelfId) has the entries in `data/` (storePathDLedgerCommitLog may name other directories), the
index in `index/`, and notes of Java's properties: `checkpoint` (committedIndex, endIndex) and `currterm`. A store that
was a plain one before keeps its segments in `commitlog/`: offsets continue from the last of them to the first entry.

Source: DLedgerCommitLog#DLedgerCommitLog, DLedgerConfig, DLedgerMmapFileStore, MemberState (dledger 0.3.1.2).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import NotAStore
from engine.files.listing import list_segments
from engine.format.names import DLEDGER, DLEDGER_DATA, segment_offset
from engine.log.source import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.files.listing import OddEntry

INDEX_DIRECTORY, CHECKPOINT, TERM = "index", "checkpoint", "currterm"
_LARGEST_NOTE = 4096
_SEPARATOR = ","


@dataclass(frozen=True, slots=True)
class DLedgerPlace:
    """Where a member of a group keeps its entries.

    Attributes:
        directory: its own, `dledger-ID` in the store; there may be none yet.
        data: directories of the entries' files.
    """

    directory: str
    data: tuple[str, ...]

    @property
    def index(self) -> str:
        """Directory of the index."""
        return os.path.join(self.directory, INDEX_DIRECTORY)

    def where(self, root: str) -> str:
        """How it is named, relative to the store."""
        path = os.path.relpath(self.data[0], root)
        return self.data[0] if path.startswith(os.pardir) else f"{path}/"


@dataclass(frozen=True, slots=True)
class DLedgerNotes:
    """What the member noted; None: it has not. The indexes are those of the last committed entry, and of the last."""

    committed_index: int | None = None
    end_index: int | None = None
    term: int | None = None


def dledger_place(disk: Disk, config: StoreConfig, root: str, present: Iterable[str]) -> DLedgerPlace | None:
    """Where the entries of a store are; None: it is no DLedger store. `present`: the names in the store's directory.

    Raises:
        NotAStore: several brokers of a group have their directories here, and no setting says which is meant.
        StorageError.
    """
    own, given = config.other.get("dLegerSelfId", "").strip(), config.other.get("storePathDLedgerCommitLog", "").strip()
    names = sorted(name for name in present if name.startswith(DLEDGER))
    if not names and not config.enable_d_leger_commit_log:
        return None
    if own:
        name = DLEDGER + own
    else:
        held = [name for name in names if _has_files(disk, os.path.join(root, name, DLEDGER_DATA))] or names
        if len(held) > 1:
            raise NotAStore(
                f"a DLedger store of several brokers: {', '.join(held)}",
                path=root,
                hint="name one in the broker.conf that -c (or --from-conf) names: dLegerSelfId=n0",
            )
        name = held[0] if held else DLEDGER + "n0"
    directory = os.path.join(root, name)
    data = [path.strip() for path in given.split(_SEPARATOR) if path.strip()] or [os.path.join(directory, DLEDGER_DATA)]
    return DLedgerPlace(directory, tuple(data))


def entry_segments(disk: Disk, place: DLedgerPlace, size: int) -> tuple[tuple[Segment, ...], tuple[OddEntry, ...]]:
    """The files of the entries, by offset, and what else is in their directories. `size`: bytes of each.

    Raises:
        StorageError: a directory can't be read.
    """
    listing = list_segments(disk, place.data, size)
    return tuple(Segment(f.offset, f.size, f.path, in_entries=True) for f in listing.files), listing.odd


def read_notes(disk: Disk, place: DLedgerPlace) -> DLedgerNotes:
    """What the member noted; what is not there, or no number, is None. Raises StorageError."""
    checkpoint = _properties(disk, os.path.join(place.directory, CHECKPOINT))
    term = _properties(disk, os.path.join(place.directory, TERM))
    return DLedgerNotes(
        _number(checkpoint.get("committedIndex")), _number(checkpoint.get("endIndex")), _number(term.get("currTerm"))
    )


def _has_files(disk: Disk, directory: str) -> bool:
    return disk.is_dir(directory) and any(segment_offset(entry.name) is not None for entry in disk.scandir(directory))


def _properties(disk: Disk, path: str) -> dict[str, str]:
    """Lines of NAME=VALUE. Source: IOUtils#properties2String, #string2Properties."""
    entry = disk.look(path)
    if entry is None or not entry.is_file:
        return {}
    text = disk.read_file(path, _LARGEST_NOTE).decode("latin-1")
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in text.splitlines())}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.removeprefix("-").isascii() and text.isdigit() else None
