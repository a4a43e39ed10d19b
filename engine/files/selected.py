"""A range of a mapped file that a reader holds (Apache SelectMappedBufferResult): it is not unmapped meanwhile."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.files.mapped_file import MappedFile


class SelectedBuffer:
    """Readable bytes of a mapped file, held until released. A context manager that gives itself.

    Attributes:
        start_offset: offset of the first byte in the queue of files.
        view: the bytes, read-only.
        size: their number.
        file: the file they are in; None once released, or where they are in memory by themselves.
    """

    __slots__ = ("file", "size", "start_offset", "view")

    def __init__(self, file: MappedFile | None, start_offset: int, view: memoryview) -> None:
        self.file = file
        self.start_offset = start_offset
        self.view = view
        self.size = len(view)

    def release(self) -> None:
        """Let the file go; a second time does nothing. Views taken of `view` stay readable all the same."""
        file, self.file = self.file, None
        if file is not None:
            file.release()

    def __enter__(self) -> SelectedBuffer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
