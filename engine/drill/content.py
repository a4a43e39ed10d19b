"""What a store holds, so that two states of it can be compared.

Two ways of being equal:
- the same *bytes*: every file but the lock, what repairs set aside (`salvage/`), and what a killed reindex was building
  (`reindex.tmp/`): as an undo must leave it;
- the same *meaning*: the same bytes of log and queues, the same entries of the index in the same order, the same marks
  and configuration. Names and times of index files come from the clock, extension addresses from what a killed run left
  unused, and the checkpoint may be older: what the store says is the same.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.drill.files import digest, walk
from engine.errors import RStoreError
from engine.format import names
from engine.format.queue_unit import UNIT_SIZE, unit_dtype
from engine.inspect.store.survey import survey
from engine.log.index_reader import ClosedIndexFile
from engine.repair.reindex.swap import BUILD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles

_SAID_ELSEWHERE = (names.INDEX, names.CHECKPOINT, f"{names.CHECKPOINT}.tmp", names.CONSUMEQUEUE_EXT)
"""Files whose bytes may differ; a temporary file that a kill left is overwritten by the next who needs it."""
_ASIDE = (names.SALVAGE, names.LOCK, BUILD)
_ROWS = 1 << 16
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Content:
    """A state of a store: path → SHA-256 of each file's bytes, and part → SHA-256 of its meaning."""

    bytes_: Mapping[str, str]
    meaning: Mapping[str, str]

    def differs(self, other: Content, *, to_the_byte: bool) -> str | None:
        """What differs, in a few words; None when nothing does."""
        mine, theirs = (self.bytes_, other.bytes_) if to_the_byte else (self.meaning, other.meaning)
        paths = sorted(path for path in mine.keys() | theirs.keys() if mine.get(path) != theirs.get(path))
        if not paths:
            return None
        more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
        return ", ".join(_said(path, mine, theirs) for path in paths[:_NAMED]) + more


def _said(path: str, mine: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    if path not in mine:
        return f"{path} is missing"
    return f"{path} is extra" if path not in theirs else f"{path} differs"


def content(disk: Disk, config: StoreConfig) -> Content:
    """What the store holds now. Raises StorageError."""
    root = os.fspath(config.store_path_root_dir)
    files = {
        path: digest(disk, entry.path)
        for entry in walk(disk, root)
        if entry.is_file and (path := os.path.relpath(entry.path, root)).split(os.sep)[0] not in _ASIDE
    }
    try:
        surveyed = survey(disk, config)
    except RStoreError:  # no store (yet): its files are all it says
        return Content(files, files)
    return Content(files, dict(_meaning(disk, surveyed, files)))


def _meaning(disk: Disk, files: StoreFiles, digests: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    extended = files.config.enable_consume_queue_ext
    for path, sha in digests.items():
        top = path.split(os.sep)[0]
        if top == names.CONSUMEQUEUE and extended:
            yield path, _without_addresses(disk, os.path.join(files.root, path))
        elif top == names.QUARANTINE:
            # A kill can leave an empty file, which is set aside, too.
            if disk.stat(os.path.join(files.root, path)).size:
                yield path, sha
        elif top not in _SAID_ELSEWHERE:
            yield path, sha
    yield names.INDEX, _entries(disk, files)


def _without_addresses(disk: Disk, path: str) -> str:
    import numpy as np

    digest = hashlib.sha256()
    file = disk.open_reader(path)
    try:
        size = file.size()
        for at in range(0, size, _ROWS * UNIT_SIZE):
            units = np.frombuffer(file.read(at, min(_ROWS * UNIT_SIZE, size - at)), dtype=unit_dtype())
            digest.update(np.ascontiguousarray(units["physical_offset"]).tobytes())
            digest.update(np.ascontiguousarray(units["size"]).tobytes())
    finally:
        file.close()
    return digest.hexdigest()


def _entries(disk: Disk, files: StoreFiles) -> str:
    """The index as what its queries see: (key hash, physical offset) of every entry, in order."""
    import numpy as np

    digest = hashlib.sha256()
    for name in files.index:
        if not name.whole:
            digest.update(name.name.encode() + b" is no index file")
            continue
        with ClosedIndexFile(disk, name.path, files.index_layout) as file:
            for first in range(1, file.entry_count + 1, _ROWS):
                rows = file.entries(first, min(_ROWS, file.entry_count + 1 - first))
                # Interleaved, so that where one file ends and the next begins makes no difference.
                both = np.empty(len(rows), dtype=[("hash", ">i4"), ("offset", ">i8")])
                both["hash"], both["offset"] = rows["key_hash"], rows["physical_offset"]
                digest.update(both.tobytes())
    return digest.hexdigest()
