"""How many threads read a log, or the pieces of a backup."""

from __future__ import annotations

import os

MOST_THREADS = 8


def threads_of(jobs: int | None) -> int:
    """How many threads to read with; `jobs` None: one a core."""
    return max(1, min(len(os.sched_getaffinity(0)) if jobs is None else jobs, MOST_THREADS))
