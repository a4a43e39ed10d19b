"""Where every call on the system's files can be seen, refused or counted: the base of `Disk`.

Each call runs within `doing(...)`, which turns what the system reports into engine.errors (with path and offset); a
subclass that overrides `doing` and `step` can refuse, count, record or kill at any of them (faults.py).
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from typing import Self

from engine.files.beneath import At, Followed, Roots, behind_link, demand_one_name
from engine.files.libc import Libc
from engine.files.operations import Doing, Operation, Touch

ROOT = 0
"""The user id of root."""


class Seam:
    """The context of a call, named points, syncs and the clock.

    Attributes:
        libc: what Python has no function for.
    """

    __slots__ = ("__dict__", "_roots")

    def __init__(self) -> None:
        self.libc = Libc()
        self._roots: Roots | None = None

    def beneath(self, roots: Roots | None) -> Self:
        """This disk, with changes below `roots` alone (beneath.py); all else is shared, counts and faults, too.

        None: with changes anywhere, for a file that is not the store's.
        """
        other = object.__new__(type(self))
        other.__dict__ = self.__dict__
        other._roots = roots
        return other

    def roots(self, *, follow: bool = False) -> Roots:
        """New roots, without any. `follow`: links below them are followed."""
        return Roots(self.libc, follow=follow)

    def admit(self, path: str) -> None:
        """A directory outside of the roots where changes are made, too: this run made it, or follows a link to it."""
        if self._roots is not None:
            self._roots.add(path)

    def demand_inside(self, path: str, touch: Touch = Touch.NAME) -> None:
        """Raise OutsideStore where a change of this path would be refused: to be asked before the first of many."""
        if self.follows:
            return
        with self.doing(Operation.STAT, path), contextlib.suppress(OSError), self._at(path) as at:
            status = None if touch is Touch.NAME else at.status()
            if status is None:
                return
            if stat.S_ISLNK(status.st_mode):
                raise behind_link(path)
            if touch is Touch.BYTES:
                demand_one_name(status, path)

    @property
    def followed(self) -> tuple[Followed, ...]:
        """Links to folders that changes follow."""
        return () if self._roots is None else self._roots.followed

    @property
    def follows(self) -> bool:
        """Whether changes go through links, too."""
        return self._roots is None or self._roots.follow

    def _at(self, path: str) -> At:
        """Where a change of this path is made. Called within `doing`. Raises OutsideStore, OSError."""
        return At(path) if self._roots is None else self._roots.at(path)

    def doing(
        self,
        operation: Operation,
        path: str,
        offset: int | None = None,
        length: int = 0,
        source: str | None = None,
    ) -> Doing:
        """The context in which one call runs; see operations.Doing."""
        return Doing(operation, path, offset, length, source)

    def step(self, name: str) -> None:
        """A named point in a change, where a test or drill may end the process. Does nothing here."""

    def fsync(self, descriptor: int) -> None:
        """fsync(2): called within `doing`, which turns an OSError into ours."""
        os.fsync(descriptor)

    def now_ms(self) -> int:
        """The clock, ms since 1970."""
        return time.time_ns() // 1_000_000

    def sleep_ms(self, ms: float) -> None:
        """Wait."""
        time.sleep(ms / 1000)
