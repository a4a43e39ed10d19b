"""A disk that fails on purpose, for tests and drills: full, broken, killed between two steps, or cut from power.

    fail_after, fail_when   an operation fails with ENOSPC, EIO … (not writes through a map: they can't)
    kill_at, kill_before    Killed is raised at a named step, or before the n-th change: the process dies here
    lost_syncs              syncs are answered, but make nothing durable
    crash_copy              the directory as it could look after a power cut now (durable.py says what that means)

`Killed` is a BaseException, so that no `except Exception` cleans up after it: a killed process doesn't
either.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from types import TracebackType

from engine.errors import InvalidArgument, from_os_error
from engine.files.disk import Disk
from engine.files.durable import DurableImage, Lose
from engine.files.operations import Doing, Operation

SPACE_TAKING = frozenset({Operation.CREATE, Operation.WRITE, Operation.ALLOCATE, Operation.MAKE_DIRECTORY})
"""What a full disk refuses."""

CHANGES = frozenset(Operation) - {
    Operation.OPEN, Operation.CLOSE, Operation.READ, Operation.MAP, Operation.LIST, Operation.STAT, Operation.LOCK
}  # fmt: skip
"""Operations that alter something, or make it durable."""
_MOVES = frozenset({Operation.REPLACE, Operation.UNLINK})
"""While one of them is under way, a name may lead to another file than the model has there."""


class Killed(BaseException):
    """The process ends here (in a test: it is caught at the top)."""


class _Watched(Doing):
    """An operation that tells its FaultyDisk when it begins and when it has succeeded."""

    __slots__ = ("_disk", "_finish")

    def __init__(self, disk: FaultyDisk, doing: Doing) -> None:
        super().__init__(doing.operation, doing.path, doing.offset, doing.length, doing.source)
        self._disk = disk
        self._finish: Callable[[], None] | None = None

    def __enter__(self) -> None:
        try:
            self._finish = self._disk.start(self)
        except OSError as error:
            raise from_os_error(error, self.operation.value, self.path, self.offset) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disk.end(self, self._finish if error is None else None)
        super().__exit__(kind, error, trace)


class FaultyDisk(Disk):
    """See the module.

    Args:
        root: the directory that `crash_copy` is about; all that is in it now counts as durable, and is kept in memory.
            None: no power cuts, and nothing is kept.
        mapped: as Disk.

    Attributes:
        lost_syncs: syncs of files and directories do nothing from now on, though they seem to.
        steps_seen: names of the steps, in order.
        changes_seen: how many changing operations have begun.
    """

    def __init__(self, root: str | None, *, mapped: bool = True) -> None:
        super().__init__(mapped=mapped)
        self.concurrent = False
        self._model_lock = threading.RLock()
        self._moved = threading.Condition(self._model_lock)
        self._moving = 0
        self._image = None if root is None else DurableImage(root)
        self._faults: list[tuple[Callable[[Doing], bool], int]] = []
        self._kill_steps: dict[str, int] = {}
        self._step_counts: Counter[str] = Counter()
        self._kill_before: int | None = None
        self.lost_syncs = False
        self.steps_seen: list[str] = []
        self.changes_seen = 0

    # --- what shall go wrong ----------------------------------------------------------------------------------------

    def fail_when(self, predicate: Callable[[Doing], bool], error: int = errno.ENOSPC) -> None:
        """Operations for which `predicate` holds fail with this errno, until `heal`."""
        self._faults.append((predicate, error))

    def fail_after(self, count: int | Callable[[Doing], bool], error: int = errno.ENOSPC) -> None:
        """After `count` more operations that take space, or once `count` (a predicate) holds, such operations fail."""
        if not isinstance(count, int):
            self.fail_when(count, error)
            return
        left = count

        def due(doing: Doing) -> bool:
            nonlocal left
            if doing.operation not in SPACE_TAKING:
                return False
            left -= 1
            return left < 0

        self.fail_when(due, error)

    def heal(self) -> None:
        """No operation fails or kills any more."""
        self._faults.clear()
        self._kill_steps.clear()
        self._kill_before = None

    def kill_at(self, step: str, nth: int = 1) -> None:
        """Raise Killed at the `nth` time from now that this step is reached, and before each change after it."""
        self._kill_steps[step] = self._step_counts[step] + nth

    def kill_before(self, nth: int) -> None:
        """Raise Killed before the `nth` changing operation from now, and before each one after it."""
        self._kill_before = self.changes_seen + nth

    # --- the power cut ----------------------------------------------------------------------------------------------

    def crash_copy(
        self, destination: str, rng: Random | None = None, lose: Lose = "random", *, torn: bool = False
    ) -> None:
        """Write into `destination` (a new directory, outside the root) what a power cut now could leave of the root.

        `lose` "all" keeps only what is sure, "none" all that was written, "random" each page, name and length by
        `rng`; `torn`: by 512-byte sector instead of by page. Raises InvalidArgument without a root, FileExistsError.
        """
        if self._image is None:
            raise InvalidArgument("a power cut needs a disk with a root", path=destination)
        with self._model_lock:
            while self._moving:  # in other threads
                self._moved.wait()
            self._image.crash_copy(destination, rng or Random(0), lose, torn=torn)

    # --- the seam ---------------------------------------------------------------------------------------------------

    def doing(
        self,
        operation: Operation,
        path: str,
        offset: int | None = None,
        length: int = 0,
        source: str | None = None,
    ) -> Doing:
        """The watched context."""
        return _Watched(self, super().doing(operation, path, offset, length, source))

    def step(self, name: str) -> None:
        """Count it; raise Killed if it is the one."""
        with self._model_lock:
            self.steps_seen.append(name)
            self._step_counts[name] += 1
            if self._kill_steps.get(name) == self._step_counts[name]:
                self._kill_before = 0
                raise Killed(name)

    def begin(self, doing: Doing) -> Callable[[], None] | None:
        """An operation begins: raise what it shall meet, or say what to note down when it has succeeded."""
        with self._model_lock:
            if doing.operation in CHANGES:
                self.changes_seen += 1
                if self._kill_before is not None and self.changes_seen >= self._kill_before:
                    raise Killed(f"before {doing.operation.value} {doing.path}")
            for predicate, number in self._faults:
                if predicate(doing):
                    raise OSError(number, os.strerror(number))
            return self._note(doing)

    def start(self, doing: Doing) -> Callable[[], None] | None:
        """As `begin`, until `end`. A crash copy may come before the count: nothing has moved by then."""
        note = self.begin(doing)
        if doing.operation in _MOVES:
            with self._model_lock:
                self._moving += 1
        return note

    def end(self, doing: Doing, note: Callable[[], None] | None) -> None:
        """An operation that had begun is over; `note`: what to note down, as it has succeeded."""
        if note is None and doing.operation not in _MOVES:
            return
        with self._model_lock:
            if doing.operation in _MOVES:
                self._moving -= 1
                self._moved.notify_all()
            if note is not None:
                note()

    def _note(self, doing: Doing) -> Callable[[], None] | None:
        """What the model has to know before the operation, and what after it."""
        image, path = self._image, doing.path
        note: Callable[[], None] | None = None
        if image is None:
            return note
        match doing.operation:
            case Operation.CREATE | Operation.MAKE_DIRECTORY:
                image.adopt(path)
                note = partial(image.add, path, is_dir=doing.operation is Operation.MAKE_DIRECTORY)
            case Operation.OPEN:
                image.adopt(path)
            case Operation.SYNC if not self.lost_syncs:
                start = doing.offset or 0
                note = image.sync_file(path, start, start + doing.length)
            case Operation.SYNC_DIRECTORY if not self.lost_syncs:
                note = image.sync_names(path)
            case Operation.UNLINK:
                image.adopt(path)
                image.keep(path)
                note = partial(image.remove, path)
            case Operation.REPLACE if doing.source is not None:
                image.adopt(doing.source)
                image.adopt(path)
                image.keep(path)
                note = partial(image.rename, doing.source, path)
        return note
