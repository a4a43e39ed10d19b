"""How many slots and entries index files have that no setting tells: by their length, proved on what they hold.

Apache's default, and nearly every broker's setting, is four entries a slot. What damaged files say is believed last.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import FormatError, StorageError
from engine.format.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexLayout,
    decode_entry,
    decode_header,
    decode_slot,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from engine.files.disk import Disk
    from engine.files.entry import Entry
    from engine.files.raw_file import RawFile
    from engine.format.index_file import IndexHeader

RATIO = 4
MOST_SLOTS = 20_000
"""Slot counts up to this one are tried where the length has not the default ratio: those of tests and small brokers."""
MOST_LINKS = 100
"""Entries of a slot that are followed to prove a layout."""


class LayoutProof(NamedTuple):
    """How much of a file agrees with a layout whose header, first entry and slot of that agree: more is greater.

    holds_key: the first entry has a hash: in slots without entries, and in entry 0, which nothing uses, are zeros.
    slots: as many slots have entries as the header counts.
    ends: the last entry is the one that the header names.
    """

    holds_key: bool
    slots: bool
    ends: bool


_WHOLE = LayoutProof(holds_key=True, slots=True, ends=True)


def infer_index_layout(disk: Disk, entries: Sequence[Entry]) -> IndexLayout | None:
    """The layout that the index files have; None when nothing tells.

    First a length at the default ratio that a file's own entries prove, the most common one; then the split of a length
    that most of a file agrees with; then a file that was cut; last a length at the default ratio without disproof.
    """
    sizes = [size for size, _ in Counter(entry.size for entry in entries if entry.size).most_common()]
    usual = {size: fitting for size in sizes if (fitting := _at_ratio(size)) is not None}
    for size, layout in usual.items():
        for entry in entries:
            if entry.size == size and any(proof.holds_key for proof, _ in _proofs(disk, entry, [layout])):
                return layout
    whole = ((entry, _splits(size)) for size in sizes for entry in entries if entry.size == size)
    cut = ((entry, _longer(entry.size)) for entry in entries)
    return _best(disk, whole) or _best(disk, cut) or next(iter(usual.values()), None)


def _best(disk: Disk, tries: Iterable[tuple[Entry, Iterable[IndexLayout]]]) -> IndexLayout | None:
    """The layout that most of a file agrees with, of those that are tried on it; the first of several."""
    best: tuple[LayoutProof, IndexLayout] | None = None
    for entry, layouts in tries:
        for one in _proofs(disk, entry, layouts):
            if one[0] == _WHOLE:
                return one[1]
            if best is None or one[0] > best[0]:
                best = one
    return None if best is None else best[1]


def _at_ratio(size: int) -> IndexLayout | None:
    slots, rest = divmod(size - HEADER_SIZE, SLOT_SIZE + RATIO * ENTRY_SIZE)
    return IndexLayout(slots, slots * RATIO) if rest == 0 and slots > 0 else None


def _splits(size: int) -> Iterable[IndexLayout]:
    """Every layout of this length."""
    room = size - HEADER_SIZE
    step = ENTRY_SIZE // SLOT_SIZE
    for slots in range((room // SLOT_SIZE) % step or step, min(room // SLOT_SIZE, MOST_SLOTS), step):
        layout = IndexLayout(slots, (room - slots * SLOT_SIZE) // ENTRY_SIZE)
        if layout.file_size == size:
            yield layout


def _longer(size: int) -> Iterable[IndexLayout]:
    """Every layout at the default ratio of a file that was longer."""
    for slots in range(1, min(size // SLOT_SIZE, MOST_SLOTS)):
        layout = IndexLayout(slots, slots * RATIO)
        if layout.file_size > size:
            yield layout


def _proofs(disk: Disk, entry: Entry, layouts: Iterable[IndexLayout]) -> Iterator[tuple[LayoutProof, IndexLayout]]:
    """Those of the layouts that a file's header, first entry and that entry's slot agree with."""
    reader = disk.open_reader(entry.path)
    try:
        header = decode_header(reader.read(0, HEADER_SIZE))
        for layout in layouts:
            if 1 < header.index_count <= layout.entries and layout.entry_position(2) <= entry.size:
                one = decode_entry(reader.read(layout.entry_position(1), ENTRY_SIZE), 0)
                number = one.key_hash % layout.slots
                slot = reader.read(layout.slot_position(number), SLOT_SIZE) if one.key_hash >= 0 else b""
                newest = decode_slot(slot)
                if _agree(header, one.physical_offset, one.previous, newest) and _linked(
                    reader, entry, layout, number, newest
                ):
                    ends = _ends(reader, entry, header, layout)
                    yield LayoutProof(one.key_hash > 0, _counted(reader, header, layout), ends), layout
    except (FormatError, StorageError):
        return
    finally:
        reader.close()


def _counted(reader: RawFile, header: IndexHeader, layout: IndexLayout) -> bool:
    """Whether as many slots have entries as the header counts; of many slots that is not looked at."""
    if layout.slots > MOST_SLOTS:
        return True
    slots = reader.read(HEADER_SIZE, layout.slots * SLOT_SIZE)
    return header.hash_slot_count == sum(1 for number in slots.cast("I") if number)


def _ends(reader: RawFile, entry: Entry, header: IndexHeader, layout: IndexLayout) -> bool:
    """Whether the last entry is there, and the one that the header names. A crash may have torn it."""
    if layout.entry_position(header.index_count) > entry.size:
        return False
    last = decode_entry(reader.read(layout.entry_position(header.index_count - 1), ENTRY_SIZE), 0)
    return last.physical_offset == header.end_phy_offset


def _linked(reader: RawFile, entry: Entry, layout: IndexLayout, slot: int, newest: int) -> bool:
    """Whether a slot's entries lead from the newest one to the first of the file, as far as they are looked at."""
    at = newest
    for _ in range(MOST_LINKS):
        if layout.entry_position(at + 1) > entry.size:
            return True  # a file that was cut
        one = decode_entry(reader.read(layout.entry_position(at), ENTRY_SIZE), 0)
        if one.key_hash < 0 or one.key_hash % layout.slots != slot:
            return False
        if at == 1:
            return True
        if not 0 < one.previous < at:
            return False
        at = one.previous
    return True


def _agree(header: IndexHeader, first_offset: int, previous: int, newest: int) -> bool:
    return first_offset == header.begin_phy_offset and previous == 0 and 0 < newest < header.index_count
