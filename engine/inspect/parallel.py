"""Work in several processes: a pool that leaves Ctrl-C to its parent, results in the order of the tasks."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.pool import Pool

WORTH_A_PROCESS = 256 << 20
"""Bytes of log for which one more process pays."""

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def processes(jobs: int | None, tasks: int, size: int) -> int:
    """How many processes to take for so many tasks of `size` bytes in all; `jobs` None: what pays on this machine."""
    if jobs is None:
        jobs = min(multiprocessing.cpu_count(), size // WORTH_A_PROCESS)
    return max(1, min(jobs, tasks))


def run_apart(function: Callable[[_Task], _Result], tasks: Sequence[_Task], count: int) -> Iterator[_Result]:
    """`function` of every task, in `count` processes."""
    with pool(count) as workers:
        yield from workers.imap(function, tasks)


def pool(count: int) -> Pool:
    """Processes that leave Ctrl-C to their parent, from their first instruction on: an ignored signal is inherited.

    Not forked: a forked child would share locks with threads that draw the progress.
    """
    context = multiprocessing.get_context("spawn")
    if threading.current_thread() is not threading.main_thread():
        return context.Pool(count)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return context.Pool(count)
    finally:
        signal.signal(signal.SIGINT, before)
