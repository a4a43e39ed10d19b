"""What a job on Spark wrote is removed, though a worker may not know yet that the job is over."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from engine.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable


def until_quiet(remove: Callable[[], None]) -> None:
    """Remove it; tasks that were cancelled, or taken for lost, may write for a moment longer.

    Raises:
        OSError, StorageError: as `remove` does at last.
    """
    for wait in (0.1, 0.5, 2.0):
        with contextlib.suppress(OSError, StorageError):
            remove()
            return
        time.sleep(wait)
    remove()
