"""Pieces read, named, packed and stored by threads: reading, hashing and packing leave Python's lock."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from engine.backup.manifest import PIECE_SIZE
from engine.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from engine.backup.repository import Repository

    Read = Callable[[int, int], memoryview]

_PAGE = 4096
_AHEAD = 2


class ReadPace:
    """At most so many bytes a second, whoever reads them; None: as fast as it goes. Thread-safe."""

    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at = time.monotonic()

    def wait(self, size: int) -> None:
        """Wait until `size` more bytes may be read."""
        if self._rate is None:
            return
        with self._lock:
            now = time.monotonic()
            start = max(now, self._free_at)
            self._free_at = start + size / self._rate
        time.sleep(max(0.0, start - now))


class PieceWriter:
    """Stores pieces. A context manager.

    Args:
        repository: that gets them.
        jobs: as `Repository.threads`.
        pace: how fast is read.
        progress: told how many bytes were read.
        prove: whether pieces that the repository has are read, and written again where they are damaged.

    Attributes:
        added: bytes that the repository grew by.
        unreadable: pages that the system could not read, and that are zeros in their pieces.
    """

    def __init__(
        self,
        repository: Repository,
        jobs: int | None,
        pace: ReadPace,
        progress: Callable[[int], None],
        *,
        prove: bool = False,
    ) -> None:
        self._repository = repository
        self._threads = repository.threads(jobs)
        self._pool = ThreadPoolExecutor(self._threads, "rstore-backup")
        self._pace = pace
        self._progress = progress
        self._prove = prove
        self._lock = threading.Lock()
        self.added = 0
        self.unreadable = 0

    def __enter__(self) -> PieceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def put(self, read: Read, size: int) -> tuple[str | None, ...]:
        """The pieces of `size` bytes that `read(position, length)` gives, from position 0 on.

        Raises:
            StorageError: the repository can't be written, or `read` ends early.
        """
        under_way: deque[Future[str | None]] = deque()
        pieces: list[str | None] = []
        try:
            for at in range(0, size, PIECE_SIZE):
                if len(under_way) >= self._threads * _AHEAD:
                    pieces.append(under_way.popleft().result())
                under_way.append(self._pool.submit(self._one, read, at, min(PIECE_SIZE, size - at)))
            pieces += [future.result() for future in under_way]
        finally:
            for future in under_way:
                future.cancel()
        return tuple(pieces)

    def put_part(self, data: memoryview) -> str:
        """A part of a piece (growing.py), as it is: its name. Raises StorageError."""
        self._pace.wait(len(data))
        name, added = self._repository.put_piece(data, prove=self._prove)
        self._progress(len(data))
        with self._lock:
            self.added += added
        return name

    def _one(self, read: Read, at: int, length: int) -> str | None:
        self._pace.wait(length)
        data = self._read(read, at, length)
        self._progress(length)
        if not data[-1]:
            data = memoryview(bytes(data).rstrip(b"\0"))
        if not data:
            return None
        name, added = self._repository.put_piece(data, prove=self._prove)
        if added:
            with self._lock:
                self.added += added
        return name

    def _read(self, read: Read, at: int, length: int) -> memoryview:
        try:
            data = read(at, length)
        except StorageError:
            data = self._page_by_page(read, at, length)
        if len(data) < length:
            raise StorageError(f"the file ends at {at + len(data)}, while it is read up to {at + length}")
        return data

    def _page_by_page(self, read: Read, at: int, length: int) -> memoryview:
        """The same where the disk can't read some of it: zeros in place of those pages."""
        out = bytearray(length)
        lost = 0
        for page in range(0, length, _PAGE):
            size = min(_PAGE, length - page)
            try:
                out[page : page + size] = read(at + page, size)
            except StorageError:
                lost += 1
        if lost * _PAGE >= length:
            return read(at, length)  # none of it: the file is gone rather than damaged
        with self._lock:
            self.unreadable += lost
        return memoryview(out).toreadonly()
