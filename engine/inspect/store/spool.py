"""Rows that a plan keeps for later: in memory while few, in an unlinked temporary file when many.

A plan must not write to the store, and must not grow with it in memory; both hold here.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from engine.errors import from_os_error
from engine.log.derive import Keys

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

IN_MEMORY = 16 << 20
"""Bytes that stay in memory."""
CHUNK_ROWS = 1 << 18
KEYS_IN_MEMORY = 24 << 20
"""Bytes of keys that stay in memory."""
KEYS_AT_ONCE = 1 << 16
"""Keys that are kept, and read back, as one piece: what is done once for each piece takes as long as thousands."""
_NEAR = (1 << 31) - 1


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Turns what the system says of a temporary file into DiskFull or StorageError."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, "writing a temporary file", tempfile.gettempdir()) from error


class Spool:
    """An append-only table of one structured dtype, read back in the order of writing."""

    def __init__(self, dtype: np.dtype[np.void], in_memory: int = IN_MEMORY) -> None:
        self.dtype = dtype
        self._in_memory = in_memory
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
        if self._bytes > self._in_memory:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="rstore-plan-")  # noqa: SIM115 - lives as long as the plan
            with _writing():
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
        """Give the memory and the file back."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._chunks, self._bytes, self._rows = [], 0, 0


class ByteSpool:
    """Bytes, read back from where they were put: the first `in_memory` of them stay in memory, the rest does not."""

    def __init__(self, in_memory: int) -> None:
        self._in_memory = in_memory
        self._held: dict[int, memoryview] = {}
        self._file: IO[bytes] | None = None
        self._end = 0
        self._first = 0  # place of the file's first byte

    def add(self, *parts: NDArray[Any]) -> int:
        """Put the bytes of arrays one after the other; their place."""
        place = self._end
        for part in parts:
            data = part.data.cast("B")
            if self._file is None and self._end + len(data) > self._in_memory:
                self._file = tempfile.TemporaryFile(prefix="rstore-plan-", buffering=0)  # noqa: SIM115 - as the plan
                self._first = self._end
            if self._file is None:
                self._held[self._end] = data
            else:
                done = 0
                with _writing():
                    while done < len(data):
                        done += os.pwrite(self._file.fileno(), data[done:], self._end - self._first + done)
            self._end += len(data)
        return place

    def read(self, place: int, length: int) -> memoryview:
        """Bytes of one array, as it was put or a part of it from its place on."""
        if self._file is not None and place >= self._first:
            return memoryview(os.pread(self._file.fileno(), length, place - self._first))
        held = self._held.get(place)
        if held is None:
            start = max(at for at in self._held if at <= place)
            held = self._held[start][place - start :]
        return held[:length]

    def close(self) -> None:
        """Give the memory and the file back."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._held, self._end = {}, 0


class _Packed(NamedTuple):
    """Some keys: how many, where they are, and what the differences in offset and time count from; wide: none do."""

    keys: int
    place: int
    offset: int
    time: int
    wide: bool


class KeySpool:
    """Index keys in the order in which they come: 12 bytes each, as long as offsets and times are near each other."""

    def __init__(self) -> None:
        self._bytes = ByteSpool(KEYS_IN_MEMORY)
        self._chunks: list[_Packed] = []
        self._filling: NDArray[np.int32] | None = None  # int32[3, KEYS_AT_ONCE]: hashes, offsets, times
        self._filled = self._keys = 0
        self._offset = self._time = 0  # what offsets and times count from there

    def __len__(self) -> int:
        return self._keys

    def add(self, keys: Keys) -> None:
        """Append keys: physical offsets ascend."""
        import numpy as np

        many = len(keys)
        if not many:
            return
        if self._filling is None or self._filled + many > self._filling.shape[1] or self._is_far(keys):
            self.pack()
            self._filling = np.empty((3, max(KEYS_AT_ONCE, many)), dtype=np.int32)
            self._offset, self._time = int(keys.physical_offset[0]), int(keys.store_timestamp[0])
            if self._is_far(keys):  # the first from the last
                self._filling = None
                columns = (np.array(column) for column in (keys.key_hash, keys.physical_offset, keys.store_timestamp))
                self._chunks.append(_Packed(many, self._bytes.add(*columns), 0, 0, True))
                self._keys += many
                return
        rows = self._filling[:, self._filled : self._filled + many]
        rows[0] = keys.key_hash
        np.subtract(keys.physical_offset, self._offset, out=rows[1], casting="unsafe")
        np.subtract(keys.store_timestamp, self._time, out=rows[2], casting="unsafe")
        self._filled += many
        self._keys += many

    def _is_far(self, keys: Keys) -> bool:
        """Whether differences to what is counted from don't fit."""
        first, last = int(keys.physical_offset[0]), int(keys.physical_offset[-1])
        low, high = int(keys.store_timestamp.min()), int(keys.store_timestamp.max())
        return max(self._offset - first, last - self._offset, self._time - low, high - self._time) > _NEAR

    def pack(self) -> None:
        """What came last becomes one piece: until more keys are added, nothing is written any more."""
        filling, many = self._filling, self._filled
        if filling is not None and many:
            columns = filling if 2 * many > filling.shape[1] else filling[:, :many].copy()
            place = self._bytes.add(*(column[:many] for column in columns))
            self._chunks.append(_Packed(many, place, self._offset, self._time, False))
        self._filling, self._filled = None, 0

    def chunks(self) -> Iterator[Keys]:
        """The keys, some at a time."""
        import numpy as np

        self.pack()
        for chunk in self._chunks:
            width, dtype = (8, "<i8") if chunk.wide else (4, "<i4")
            hashes = np.frombuffer(self._bytes.read(chunk.place, 4 * chunk.keys), dtype=np.int32)
            at = chunk.place + 4 * chunk.keys
            offsets, times = (
                np.frombuffer(self._bytes.read(at + k * width * chunk.keys, width * chunk.keys), dtype=dtype)
                for k in range(2)
            )
            if chunk.wide:
                yield Keys(hashes, offsets, times)
            else:
                yield Keys(hashes, offsets.astype(np.int64) + chunk.offset, times.astype(np.int64) + chunk.time)

    def close(self) -> None:
        """Give the memory and the file back."""
        self._bytes.close()
        self._chunks, self._filling = [], None
        self._filled = self._keys = 0
