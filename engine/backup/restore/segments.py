"""Segments written from their pieces by threads, each piece proved before it is written. What is there stays."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from engine.backup.manifest import PIECE_SIZE
from engine.files.written import is_zeros
from engine.log.scan import LONG, ready_kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from engine.backup.manifest import SegmentRef
    from engine.backup.repository import Repository
    from engine.files.disk import Disk
    from engine.files.raw_file import RawFile

_SYNC_EVERY = 64
"""Pieces, 256 MiB."""
_AHEAD = 16
"""Pieces for each thread that are asked for: one that waits for the disk doesn't stop the others."""
_MOST_SYNCS = 16
"""That wait for the device: as many files are open, not all of a log."""


class SegmentWriter:
    """See the module. A context manager; what was written is durable when it is left without an error.

    Theory: a device takes about as long to make a log durable as the processors to unpack it. So a thread of its own
    syncs files while what follows is written, every `_SYNC_EVERY` pieces, so that little is left at the end.

    Args:
        disk: that writes.
        repository: that has the pieces.
        jobs: as `Repository.threads`.
        progress: told of each piece its bytes, and whether it was there.
        total: bytes of the log: what reads a long one afterwards is loaded meanwhile.
    """

    def __init__(
        self,
        disk: Disk,
        repository: Repository,
        jobs: int | None,
        progress: Callable[[int, bool], None],
        total: int,
    ) -> None:
        self._disk = disk
        self._repository = repository
        self._progress = progress
        self._threads = repository.threads(jobs) * (2 if jobs is None else 1)  # some wait for the disk
        self._pool = ThreadPoolExecutor(self._threads, "rstore-restore")
        self._syncing = ThreadPoolExecutor(1, "rstore-restore-sync")
        self._under_way: deque[Future[tuple[int, bool]]] = deque()
        self._syncs: deque[Future[None]] = deque()
        self._files: set[RawFile] = set()
        if total >= LONG:
            self._pool.submit(ready_kernels)  # if that fails, whoever needs them says so

    def __enter__(self) -> SegmentWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.wait()
                for sync in self._syncs:
                    sync.result()
        finally:
            self._pool.shutdown(cancel_futures=True)
            self._syncing.shutdown(cancel_futures=True)
            for file in self._files:
                file.close()

    def wait(self) -> None:
        """Wait until all is written, and may be read; it need not be durable yet. Raises as `write`."""
        while self._under_way:
            self._progress(*self._under_way.popleft().result())

    def write(self, path: str, segment: SegmentRef, length: int, *, allocate: bool) -> None:
        """One file: its first `length` bytes from its pieces, zeros up to its size. It may still be written on return.

        Raises:
            FormatError, StorageError: the repository is damaged, or the disk refused.
        """
        pieces = self._repository.get_segment(segment.pieces).pieces
        file = self._disk.open_raw(path, writable=True, create=True)
        self._files.add(file)
        there = file.size()
        if there > segment.size:
            file.set_size(0)  # not ours: a piece of another size would stay behind
            there = 0
        file.set_size(segment.size)
        if allocate:
            file.allocate(0, segment.size)
        since: list[Future[tuple[int, bool]]] = []
        for at, some, piece in _pieces_of(pieces, length):
            if len(self._under_way) >= _AHEAD * self._threads:
                self._progress(*self._under_way.popleft().result())
            since.append(self._pool.submit(self._one, file, at, some, piece, at < there))
            self._under_way.append(since[-1])
            if len(since) == _SYNC_EVERY:
                self._sync_after(file, since, is_last=False)
                since = []
        self._sync_after(file, since, is_last=True)

    def _sync_after(self, file: RawFile, written: Sequence[Future[tuple[int, bool]]], *, is_last: bool) -> None:
        """Make the file durable, in the thread that does nothing else, when these pieces are written, and close it
        after the last of them."""

        def sync() -> None:
            for one in written:
                one.result()
            file.sync(0, file.size())
            if is_last:
                self._files.discard(file)
                file.close()

        while len(self._syncs) >= _MOST_SYNCS:
            self._syncs.popleft().result()
        self._syncs.append(self._syncing.submit(sync))

    def _one(self, file: RawFile, at: int, length: int, piece: str | None, may_be_there: bool) -> tuple[int, bool]:
        """One piece, written unless it is there; the bytes, and whether it was."""
        is_whole = length == PIECE_SIZE
        if may_be_there:
            there = file.read(at, length)
            if piece is None and is_zeros(there):
                return length, True
            if piece is not None and is_whole and self._repository.hash_of(bytes(there).rstrip(b"\0")) == piece:
                return length, True
        data = b"" if piece is None else self._repository.get_piece(piece)[:length]
        file.write(at, data)
        if may_be_there and len(data) < length:
            file.write(at + len(data), bytes(length - len(data)))
        self._disk.step("restore:piece")
        return length, False


def _pieces_of(pieces: tuple[str | None, ...], length: int) -> Iterator[tuple[int, int, str | None]]:
    """Position, length and name of the pieces of the first `length` bytes."""
    for number, piece in enumerate(pieces):
        at = number * PIECE_SIZE
        if at >= length:
            return
        yield at, min(PIECE_SIZE, length - at), piece
