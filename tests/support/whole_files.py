"""A disk that reads small files once: for tests that ask a store for each of its messages, by every way there is."""

from __future__ import annotations

from engine.files.disk import Disk
from engine.files.raw_file import RawFile

MOST = 32 << 20
"""Bytes of a file that is read whole."""


class WholeFiles(Disk):
    """What its readers have read of a store that nobody changes meanwhile stays in memory."""

    def __init__(self) -> None:
        super().__init__(mapped=False)

    def open_reader(self, path: str) -> RawFile:
        file = super().open_reader(path)
        return file if file.size() > MOST else _WholeFile(file)


class _WholeFile(RawFile):
    """A file that is read once, when it is first asked for."""

    __slots__ = ("_whole",)

    def __init__(self, file: RawFile) -> None:
        super().__init__(file._disk, file.path, file._file)
        self._whole: memoryview | None = None

    def read(self, offset: int, length: int) -> memoryview:
        if self._whole is None:
            self._whole = super().read(0, self.size())
        return self._whole[offset : offset + length]
