"""The slots of a new index file while very many keys are put: in memory, until all of them are linked.

Each page of the slots is touched then, which by way of the file's map costs more than all the rest. Where a thread is
given, it writes the entries of one put while those of the next are linked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future

    import numpy as np
    from numpy.typing import NDArray

    from engine.log.kernels.index import NewSlots


class GatheredSlots:
    """Those of one file, and what of its entries is being written.

    Args:
        slots: of the keys that are in the file.
        beside: one thread, which writes.
    """

    __slots__ = ("_beside", "_linked", "_slots", "_writing")

    def __init__(self, slots: NewSlots, beside: Executor | None) -> None:
        self._slots: NewSlots | None = slots  # None: something has failed, and they name keys that are not there
        self._linked: NewSlots | None = None
        self._beside = beside
        self._writing: Future[None] | None = None

    @property
    def is_beside(self) -> bool:
        """Whether a thread writes."""
        return self._beside is not None

    def slots(self, anew: Callable[[], NewSlots]) -> NewSlots:
        """The slots of what is written. `anew`: makes them of the file's entries."""
        self.settle()
        return self._slots or anew()

    def link(
        self,
        columns: tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]],
        first: int,
        begin_timestamp: int,
        anew: Callable[[], NewSlots],
    ) -> tuple[NDArray[np.uint8], int]:
        """As `NewSlots.link`, then wait for what was to be written before: `write` is to follow.

        Raises:
            DiskFull, StorageError: it could not be.
        """
        slots, self._slots = self._slots, None
        if slots is None:
            self.settle()
            slots = anew()
        linked = slots.link(columns, first, begin_timestamp)
        self.settle()
        self._linked = slots
        return linked

    def write(self, work: Callable[[], None], failed: Callable[[], None]) -> None:
        """Write what was linked last by `work`, here or beside; `failed` is called where that raises something."""

        def run() -> None:
            try:
                work()
            except BaseException:
                self._slots = None
                failed()
                raise

        self._slots, self._linked = self._linked, None
        if self._beside is None:
            run()
        else:
            self._writing = self._beside.submit(run)

    def settle(self) -> None:
        """Wait for what is written beside. Raises what failed there, once: DiskFull, StorageError."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()
