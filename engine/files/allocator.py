"""Files made ahead of time, in the background, so that an append rarely waits for the disk.

Theory (Apache AllocateMappedFileService): whoever needs a file asks for it and names the one after it. A
thread makes both, in that order; the asker waits for the first only. So from the second file on it is there
already.

Differences: a creation that failed is an error for who asks for that file (DiskFull, StorageError), and is
tried again when it is asked for again, so puts work again when space returns. A failed file made in advance
is tried once more before anybody hears of it. Without a running thread files are made in the caller's.

Clean shutdown deletes the files that nobody took (Apache's shutdown does); a crash leaves them on disk as all
zeros, which recovery cuts.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path

from engine.errors import RStoreError, StorageError
from engine.files.disk import Disk
from engine.files.mapped_file import MappedFile
from engine.files.transient_pool import TransientStorePool

WAIT_MS = 5000
"""How long an asker waits (Apache waitTimeOut)."""

DISCARD_INTERVAL_MS = 1000


class _Request:
    """One file to be made."""

    __slots__ = ("done", "error", "file", "path", "size")

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
        self.file: MappedFile | None = None
        self.error: BaseException | None = None
        self.done = threading.Event()


class SegmentAllocator:
    """See the module. Thread-safe.

    Args:
        disk: the system's files.
        pool: new files take a write buffer from it.
        warm_pages: touch every page of a new file, syncing each so many pages (with `warm_sync`), and lock it in
            memory (Apache warmMapedFileEnable, flushLeastPagesWhenWarmMapedFile); None: don't.
        warm_min_size: only files of this size and more, bytes (Apache: the commitlog's).
        fast_fail: with a pool, refuse a file for which no buffer is left (isFastFailIfNoBufferInStorePool).
        wait_ms: how long an asker waits.

    Attributes:
        single_pages: of the files that it makes from now on: see MappedFile.single_pages.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        pool: TransientStorePool | None = None,
        warm_pages: int | None = None,
        warm_sync: bool = False,
        warm_min_size: int = 0,
        fast_fail: bool = False,
        wait_ms: int = WAIT_MS,
    ) -> None:
        self._disk = disk
        self._pool = pool
        self._warm_pages = warm_pages
        self._warm_sync = warm_sync
        self._warm_min_size = warm_min_size
        self._fast_fail = fast_fail
        self._wait_ms = wait_ms
        self.single_pages = False
        self._changed = threading.Condition()
        self._requests: dict[str, _Request] = {}
        self._waiting: deque[_Request] = deque()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def start(self) -> None:
        """Begin to work in the background; a second time does nothing."""
        with self._changed:
            if self._thread is None:
                self._stopping = False
                self._thread = threading.Thread(target=self._run, name="SegmentAllocator", daemon=True)
                self._thread.start()

    def stop(self, *, discard: bool = False) -> None:
        """End the thread. `discard`: delete the files that nobody took, as a clean shutdown does; else they stay.

        Raises StorageError when one can't be deleted.
        """
        with self._changed:
            thread, self._thread = self._thread, None
            self._stopping = True
            self._changed.notify_all()
        if thread is not None:
            thread.join()
        with self._changed:
            left = [request.file for request in self._requests.values() if request.file is not None]
            self._requests.clear()
            self._waiting.clear()
        for file in left:
            if discard:
                file.destroy(DISCARD_INTERVAL_MS)
            else:
                file.shutdown(DISCARD_INTERVAL_MS)

    @property
    def prepared(self) -> tuple[str, ...]:
        """Paths of the files that are ready and not taken."""
        with self._changed:
            return tuple(sorted(path for path, request in self._requests.items() if request.file is not None))

    def take(self, path: str, next_path: str, size: int) -> MappedFile:
        """The file `path` of `size` bytes; and have `next_path` made in advance.

        Raises DiskFull or StorageError (also when it takes longer than the wait: it is then made all the same, and
        there for who asks again).
        """
        with self._changed:
            background = self._thread is not None
            if background:
                request = self._request(path, size)
                self._request_ahead(next_path, size)
        if not background:
            return self._make(path, size)
        if not request.done.wait(self._wait_ms / 1000):
            raise StorageError(f"creating the file takes longer than {self._wait_ms} ms", path=path)
        with self._changed:
            if self._requests.get(path) is request:
                del self._requests[path]
        if request.file is None:
            raise request.error or StorageError("the store is closing", path=path)
        return request.file

    def forget(self, path: str) -> None:
        """Give up a file that was asked for and could not be had; one that is ready after all is deleted."""
        with self._changed:
            request = self._requests.pop(path, None)
            if request is not None and request in self._waiting:
                self._waiting.remove(request)
        if request is not None and request.file is not None:
            request.file.destroy(0)

    def _request(self, path: str, size: int) -> _Request:
        known = self._requests.get(path)
        if known is not None and known.error is None:
            if known in self._waiting:
                self._waiting.remove(known)
                self._waiting.appendleft(known)
            return known
        self._refuse_without_buffer(path)
        request = self._requests[path] = _Request(path, size)
        # In front of what is only wanted in advance.
        self._waiting.appendleft(request)
        self._changed.notify_all()
        return request

    def _request_ahead(self, path: str, size: int) -> None:
        spoken_for = len(self._waiting)
        buffers = None if self._pool is None or not self._fast_fail else self._pool.available - spoken_for
        if path not in self._requests and (buffers is None or buffers > 0):
            request = self._requests[path] = _Request(path, size)
            self._waiting.append(request)
            self._changed.notify_all()

    def _refuse_without_buffer(self, path: str) -> None:
        if self._fast_fail and self._pool is not None and self._pool.available <= len(self._waiting):
            raise StorageError("no write buffer is left in the pool", path=path)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    for request in self._waiting:
                        request.done.set()
                    return
                request = self._waiting.popleft()
            try:
                request.file = self._make(request.path, request.size)
            except BaseException as error:  # noqa: BLE001  whatever it is belongs to who asks for the file
                request.error = error
            finally:
                request.done.set()

    def _make(self, path: str, size: int) -> MappedFile:
        self._disk.mkdirs(str(Path(path).parent))
        file = MappedFile.create(self._disk, path, size, self._pool, single_pages=self.single_pages)
        if self._warm_pages is not None and size >= self._warm_min_size:
            try:
                file.warm(self._warm_pages, sync=self._warm_sync)
            except RStoreError:
                file.destroy(0)
                raise
        return file
