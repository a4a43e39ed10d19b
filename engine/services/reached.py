"""How far dispatch has come, and who waits for it to come further."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.errors import RStoreError, Shortage


class Reached:
    """See the module. Thread-safe; who dispatches sets it.

    Args:
        awaited: called with how many wait more than before (fewer: below 0).

    Attributes:
        position: physical offset up to which everything is in queues and index.
        stuck: what dispatch waits for now.
    """

    def __init__(self, awaited: Callable[[int], None]) -> None:
        self._awaited = awaited
        self._changed = threading.Condition()
        self._calls: list[tuple[int, Callable[[], None]]] = []
        self._failure: RStoreError | None = None
        self._over = False
        self.position = 0
        self.stuck: Shortage | None = None

    # --- for who waits ----------------------------------------------------------------------------------------------

    def wait(self, offset: int, timeout_ms: float | None = None) -> bool:
        """Wait until `position` has reached `offset`; False after `timeout_ms`, or when dispatch has failed."""
        with self._waiting(), self._changed:
            self._changed.wait_for(
                lambda: self.position >= offset or self._failure is not None or self._over,
                None if timeout_ms is None else timeout_ms / 1000,
            )
            return self.position >= offset

    def catch_up(self, offset: int) -> None:
        """Wait until `position` has reached `offset`.

        Raises:
            RStoreError: dispatch has failed. Shortage: it waits for space, or for descriptors.
        """
        with self._waiting(), self._changed:
            self._changed.wait_for(lambda: self.position >= offset or self._failure or self.stuck or self._over)
            trouble = self._failure or self.stuck
            if self.position < offset and trouble is not None:
                raise trouble

    def when(self, offset: int, call: Callable[[], None]) -> None:
        """Have `call` called, once, when `position` has reached `offset`, or dispatch can't get there for now.

        By who dispatches, or at once from here; it must not block, nor raise.
        """
        with self._changed:
            waits = self.position < offset and not (self._failure or self.stuck or self._over)
            if waits:
                self._calls.append((offset, call))
        if waits:
            self._awaited(1)
        else:
            call()

    # --- for who dispatches -----------------------------------------------------------------------------------------

    def move(self, position: int) -> None:
        """Everything up to there is in queues and index."""
        with self._changed:
            self.position = position
            self._changed.notify_all()
        if self._calls:
            self._call(position)

    def stick(self, error: Shortage) -> None:
        """The rest has to wait for what the system lacks."""
        with self._changed:
            self.stuck = error
            self._changed.notify_all()
        self._call()

    def fail(self, error: RStoreError) -> None:
        """Nothing more is dispatched."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()
        self._call()

    def end(self) -> None:
        """Nothing more is dispatched: the store is closed."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        self._call()

    # --- inside -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        self._awaited(1)
        try:
            yield
        finally:
            self._awaited(-1)

    def _call(self, position: int | None = None) -> None:
        """Call who waits for a physical offset up to `position`; None: everybody, as nothing more will come for now."""
        with self._changed:
            calls, self._calls = self._calls, []
            if position is not None:
                self._calls = [(offset, call) for offset, call in calls if offset > position]
                calls = [(offset, call) for offset, call in calls if offset <= position]
        if calls:
            self._awaited(-len(calls))
        for _, call in calls:
            call()
