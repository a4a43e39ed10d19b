"""Index entries by tag, which brokers of RocketMQ 5.4 and later put after those by key: an earlier one has none.

A store may have both kinds of records: its broker was upgraded, or an earlier one uses it again. So entries that are
there are compared without asking which broker put them (`TagKeys`), and `indexes_tags` tells what is put for other
records: what the last entries show, or, without any, what the store's release does.

Source: IndexService#buildIndex (5.4.0, 5.5.0), whose key of a tag is `topic#T#tag`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from engine.errors import RStoreError, StorageError
from engine.format import properties
from engine.format.hashing import index_key_hash, tag_index_key
from engine.format.message import decode
from engine.format.record import INT_SIZE, total_size_at
from engine.inspect.store.release import release_of
from engine.log.index_reader import ClosedIndexFile
from engine.log.source import ClosedLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.log.source import Segment

_SINCE = "5.4"
_LAST = 64
"""Entries of the newest index file that are looked at."""


class TagKeys:
    """Tells which index entries are those of their record's tag. `segments`: the log's."""

    def __init__(self, disk: Disk, segments: Sequence[Segment]) -> None:
        self._disk = disk
        self._segments = segments

    def mask(self, physical: NDArray[np.int64], hashes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these entries (physical offset of their record, hash of their key) are so. Raises StorageError."""
        import numpy as np

        with ClosedLog(self._disk, self._segments) as log:
            pairs = zip(physical.tolist(), hashes.tolist(), strict=True)
            masks = [_tag_hash(log, at) == wanted for at, wanted in pairs]
        return np.array(masks, dtype=np.bool_)


def indexes_tags(disk: Disk, files: StoreFiles) -> bool:
    """Whether a store's broker indexes tags, too: an index without an entry of a record with a tag tells nothing."""
    if not files.newer:
        return False
    shown = None
    whole = [one for one in files.index if one.whole]
    if whole:
        with contextlib.suppress(RStoreError), ClosedIndexFile(disk, whole[-1].path, files.index_layout) as file:
            count = file.entry_count
            last = file.entries(max(1, count - _LAST + 1), min(count, _LAST)) if count else None
            if last is not None:
                places, hashes = last["physical_offset"].tolist(), last["key_hash"].tolist()
                shown = _shown(disk, files.log, list(zip(places, hashes, strict=True)))
    if shown is not None:
        return shown
    release = release_of(disk, files)
    return release is not None and release.is_since(_SINCE)


def _shown(disk: Disk, segments: Sequence[Segment], entries: list[tuple[int, int]]) -> bool | None:
    """Whether these entries (physical offset, key hash) have those of tags; None: none is of a record with a tag."""
    there = set(entries)
    tagged = False
    with ClosedLog(disk, segments) as log:
        for at in dict(entries):
            with contextlib.suppress(StorageError):
                tag_hash = _tag_hash(log, at)
                if tag_hash is not None and (at, tag_hash) in there:
                    return True
                tagged = tagged or tag_hash is not None
    return False if tagged else None


def _tag_hash(log: ClosedLog, at: int) -> int | None:
    """Hash of the tag's key of the record at a physical offset; None: it has no tag, or there is no record."""
    head = log.read(at, INT_SIZE)
    if len(head) < INT_SIZE:
        return None
    size = max(total_size_at(head), 0)
    try:
        message = decode(bytes(log.read(at, size)))
    except RStoreError:
        return None
    tag = message.properties.get(properties.TAGS)
    return index_key_hash(tag_index_key(message.topic, tag)) if tag else None
