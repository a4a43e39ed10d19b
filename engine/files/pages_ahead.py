"""Has the pages ready that appends are going to touch, so that the putting thread meets no page fault.

The first touch of a page of a new file takes the system 6 to 9 µs (page cache, block lookup, journal): as long as
fourteen small records take us. It is done by a thread beside, a few MiB before the log end, and only
under load: a store that takes a few messages has neither the thread nor the pages.

What is touched holds what it held, zeros; at most `LEAD` bytes of it are written back a second time.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from engine.files.segment import PAGE
from engine.format.numbers import LONG_MAX

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.files.mapped_file import MappedFile

BEGIN = 1 << 20
"""Bytes that are appended before it begins."""
LEAD = 4 << 20
"""How far before the end pages are touched, bytes."""


class PagesAhead:
    """See the module. `go_on` is called by one thread at a time, under the log's append lock.

    Attributes:
        wanted_from: physical offset from which on an append calls `go_on`.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._changed = threading.Condition()
        self._wanted: tuple[MappedFile, int] | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self.wanted_from = LONG_MAX

    def begin(self, end: int) -> None:
        """The log, open now, ends at this physical offset."""
        if self._disk.concurrent:  # else every call to the disk is counted, in an order that has to come again
            self.wanted_from = end + BEGIN

    def go_on(self, file: MappedFile) -> None:
        """Touch what lies after the end of the file that is appended to; returns at once."""
        position = file.wrote_position
        self.wanted_from = file.file_from_offset + position + LEAD // 2
        with self._changed:
            if self._stopping:
                self.wanted_from = LONG_MAX
                return
            self._wanted = (file, position)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="PagesAhead", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def put_off(self, end: int) -> None:
        """What comes next is written by call, and touches no page: begin anew after this physical offset."""
        if self.wanted_from != LONG_MAX:
            self.wanted_from = end + BEGIN

    def stop(self) -> None:
        """End the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        known: MappedFile | None = None
        done = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._wanted is not None)
                wanted, self._wanted = self._wanted, None
                if self._stopping or wanted is None:
                    return
            file, position = wanted
            start = -(-max(position, done if file is known else 0) // PAGE) * PAGE
            known, done = file, min(position + LEAD, file.file_size)
            if start < done and not file.touch(start, done):
                self.wanted_from = LONG_MAX  # the system can't, or the file is written by call
                with self._changed:
                    self._stopping = True
                return
