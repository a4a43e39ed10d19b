"""What is timed of a job: the wall and the processor, between two calls, in the process that does the work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.bench.workload import BORN_MS, PER_MS, Workload
from engine.dataclass import dataclass

if TYPE_CHECKING:
    from engine.config import StoreConfig

TOP = 40
"""Functions that a profile shows."""


@dataclass(slots=True)
class Timer:
    """Seconds and processor seconds (all threads) inside its `with`; with `profile` a path, cProfile's text goes there.

    cProfile sees the thread that it is started in, and makes Python code slower than it is.
    """

    profile: Path | None = None
    seconds: float = 0.0
    cpu: float = 0.0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """What is inside is timed; may be entered several times."""
        profiler = None
        if self.profile is not None:
            import cProfile

            profiler = cProfile.Profile()
            profiler.enable()
        cpu, began = time.process_time(), time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began
            self.cpu += time.process_time() - cpu
            if profiler is not None and self.profile is not None:
                profiler.disable()
                _write(profiler, self.profile)


def _write(profiler: Any, path: Path) -> None:
    import io
    import pstats

    text = io.StringIO()
    pstats.Stats(profiler, stream=text).strip_dirs().sort_stats("cumulative").print_stats(TOP)
    with path.open("a", encoding="utf-8") as file:
        file.write(text.getvalue())


@dataclass(frozen=True, slots=True)
class MeasureTask:
    """What one process is to measure.

    Attributes:
        job: its name.
        workload: what the store holds, or what its puts are like.
        root: the store.
        messages: in the store's log.
        count: messages to put, to get or to ask for.
        callers: threads that put.
        first_ms, per_ms: store time of the log's first message, and how many were stored in each millisecond.
    """

    job: str
    workload: Workload
    root: Path
    messages: int = 0
    count: int = 0
    callers: int = 1
    first_ms: int = BORN_MS
    per_ms: int = PER_MS

    def to_json(self) -> dict[str, Any]:
        """As a child reads it."""
        return {**asdict(self), "root": str(self.root)}

    @classmethod
    def of(cls, fields: dict[str, Any]) -> MeasureTask:
        """From `to_json`."""
        return cls(**{**fields, "workload": Workload(**fields["workload"]), "root": Path(fields["root"])})

    @property
    def config(self) -> StoreConfig:
        """The store's settings."""
        return self.workload.config(self.root)


@dataclass(slots=True)
class Done:
    """What a job did: messages, bytes of records, and what else is worth telling."""

    messages: int
    size: int = 0
    more: dict[str, float] = field(default_factory=dict)
