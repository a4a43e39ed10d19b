"""Seals in a backup: they are stored beside the segments, and what is read of one is compared with its seal."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from engine.errors import FormatError, StorageError
from engine.format import names
from engine.seals.directory import read_seal
from engine.seals.layout import HEAD_SIZE, PIECE_SIZE
from engine.seals.page_hash import page_hasher

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.backup.manifest import StoredFile
    from engine.files.disk import Disk
    from engine.seals.seal import Seal

    Read = Callable[[int, int], memoryview]


class ComparedReads:
    """Reads of one segment, as `PieceWriter.put` makes them, each compared with the segment's seal. Thread-safe.

    Args:
        read: gives `length` bytes at a position of the segment.
        seal: its seal; None: nothing is compared.

    Attributes:
        changed: bytes in pages that are not as they were sealed.
    """

    def __init__(self, read: Read, seal: Seal | None) -> None:
        self._read = read
        self._seal = seal
        self._hasher = page_hasher(0 if seal is None else seal.size)
        self._lock = threading.Lock()
        self.changed = 0

    def __call__(self, at: int, length: int) -> memoryview:
        """The bytes."""
        data = self._read(at, length)
        seal = self._seal
        if seal is not None and at % PIECE_SIZE == 0 and length == seal.piece_range(at // PIECE_SIZE)[1]:
            changed = sum(size for _, size in seal.changed_pages(at // PIECE_SIZE, data, self._hasher))
            with self._lock:
                self.changed += changed
        return data


def seal_of(disk: Disk, root: str, offset: int, size: int) -> Seal | None:
    """The seal of a segment; None where there is none that can be read, or it is of another length: scrub tells why."""
    try:
        seal = read_seal(disk, root, offset)
    except (FormatError, StorageError):
        return None
    return None if seal is None or seal.size != size else seal


class StoredSeals:
    """The seals that earlier rounds of a run have stored: they are many, and hardly ever change."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, StoredFile]] = {}

    def stored(self, path: str, read: Read, size: int, store: Callable[[], StoredFile]) -> StoredFile:
        """A file beside the log as it was stored before, where it is a seal whose header is the same; else stored now.

        Raises StorageError.
        """
        if not path.startswith(names.SEALS + "/"):
            return store()
        head = bytes(read(0, min(HEAD_SIZE, size)))
        before = self._known.get(path)
        if before is None or before[0] != head or before[1].size != size:
            before = self._known[path] = head, store()
        return before[1]
