"""Index entries by tag, which brokers of RocketMQ 5.5 put beside those by key: a 4.9 broker has none.

Source: IndexService#buildIndex (5.5.0), whose key of a tag is `topic#T#tag`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import RStoreError
from engine.format.hashing import index_key_hash
from engine.format.message import decode
from engine.format.record import INT_SIZE, total_size_at
from engine.log.source import ClosedLog

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.files.disk import Disk
    from engine.log.source import Segment


class TagKeys:
    """Tells which index entries are those of their record's tag. `segments`: the log's."""

    def __init__(self, disk: Disk, segments: tuple[Segment, ...]) -> None:
        self._disk = disk
        self._segments = segments

    def mask(self, physical: NDArray[np.int64], hashes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these entries (physical offset of their record, hash of their key) are so. Raises StorageError."""
        import numpy as np

        with ClosedLog(self._disk, self._segments) as log:
            masks = [
                self._hash(log, at) == wanted for at, wanted in zip(physical.tolist(), hashes.tolist(), strict=True)
            ]
        return np.array(masks, dtype=np.bool_)

    @staticmethod
    def _hash(log: ClosedLog, at: int) -> int | None:
        head = log.read(at, INT_SIZE)
        if len(head) < INT_SIZE:
            return None
        size = max(total_size_at(head), 0)
        try:
            message = decode(bytes(log.read(at, size)))
        except RStoreError:
            return None
        tag = message.properties.get("TAGS")
        return None if not tag else index_key_hash(f"{message.topic}#T#{tag}")
