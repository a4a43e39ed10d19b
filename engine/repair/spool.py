"""Rows that a plan keeps for later: in memory while few, in an unlinked temporary file when many.

A plan must not write to the store, and must not grow with it in memory; both hold here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

IN_MEMORY = 16 << 20
"""Bytes that stay in memory."""
CHUNK_ROWS = 1 << 18


class Spool:
    """An append-only table of one structured dtype, read back in the order of writing."""

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        self.dtype = dtype
        self._chunks: list[NDArray[np.void]] = []
        self._bytes = 0
        self._rows = 0
        self._file: IO[bytes] | None = None

    def __len__(self) -> int:
        return self._rows

    def add(self, rows: NDArray[np.void]) -> None:
        """Append rows."""
        import numpy as np

        if not len(rows):
            return
        self._rows += len(rows)
        self._chunks.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > IN_MEMORY:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="rstore-plan-")  # noqa: SIM115 - lives as long as the plan
            self._file.seek(0, 2)
            for chunk in self._chunks:
                self._file.write(np.ascontiguousarray(chunk).view(np.uint8).data)
            self._chunks, self._bytes = [], 0

    def chunks(self) -> Iterator[NDArray[np.void]]:
        """The rows, some at a time."""
        import numpy as np

        if self._file is not None:
            at = 0
            while True:
                self._file.seek(at)
                data = self._file.read(CHUNK_ROWS * self.dtype.itemsize)
                if not data:
                    break
                at += len(data)
                yield np.frombuffer(data, dtype=self.dtype)
        yield from self._chunks

    def close(self) -> None:
        """Give the room back."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._chunks, self._bytes, self._rows = [], 0, 0
