"""What a job on Spark wrote is removed, though a worker may not know yet that the job is over.

Removal is not interrupted: the job has ended by then, and what an interrupt would leave nobody finds again. A function
that is to come to its end says so by a local variable `_interrupts_wait` (read by rstore_cli.spark_signals).
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from functools import partial
from typing import TYPE_CHECKING

from engine.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def scratch() -> Iterator[str]:
    """A directory that is removed at the end: Python workers of a JVM that was ended may write for a moment longer."""
    _interrupts_wait = True
    path = tempfile.mkdtemp(prefix="rstore-spark-")
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            until_quiet(partial(shutil.rmtree, path))


def until_quiet(remove: Callable[[], None]) -> None:
    """Remove it; tasks that were cancelled, or taken for lost, may write for a moment longer.

    Raises:
        OSError, StorageError: as `remove` does at last.
    """
    _interrupts_wait = True
    for wait in (0.1, 0.5, 2.0):
        with contextlib.suppress(OSError, StorageError):
            remove()
            return
        time.sleep(wait)
    remove()
