"""What the machine can do with a log's bytes: read them once, and run the fastest CRC-32 over them, on all cores.

Reading is a sum over the map. The CRC goes over the records' bytes in pieces of 1 MiB, from the map and read into a
buffer, with each library that is here (zlib; isal where it is installed); the fastest of them is the limit. Each of
these maps the file anew, so that each pays for its pages.
"""

from __future__ import annotations

import contextlib
import importlib
import mmap
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from engine.bench.timing import Done, MeasureTask, Timer
from engine.bench.workload import written_ranges
from engine.format import names

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

PIECE = 1 << 20
Crc = Callable[["Buffer"], int]
_Piece = tuple[Path, int, int]


def libraries() -> Mapping[str, Crc]:
    """The CRC-32 (IEEE) functions that are here, by name."""
    functions: dict[str, Crc] = {"zlib": zlib.crc32}
    with contextlib.suppress(ImportError):
        functions["isal"] = importlib.import_module("isal.isal_zlib").crc32
    return functions


def limits(task: MeasureTask, timed: Timer) -> Done:
    """Seconds for each way, in `more`; the timer has reading alone."""
    written = list(written_ranges(task.workload, task.root / names.COMMITLOG))
    size = sum(length for _, length in written)
    pieces = [(path, at, min(PIECE, length - at)) for path, length in written for at in range(0, length, PIECE)]
    more: dict[str, float] = {}
    with timed():
        _all(pieces, _sum)
    more["read"] = timed.seconds
    for name, crc in libraries().items():
        for how, run in (("map", _over_map), ("buffer", _over_buffer)):
            began = time.perf_counter()
            _all(pieces, run(crc))
            more[f"{name} ({how})"] = time.perf_counter() - began
    return Done(task.messages, size, more)


def _all(pieces: list[_Piece], run: Callable[[list[_Piece]], None]) -> None:
    """Run over all pieces, a thread a core, each with its own range of the log."""
    cores = os.cpu_count() or 1
    share = -(-len(pieces) // cores)
    parts = [pieces[at : at + share] for at in range(0, len(pieces), share)]
    with ThreadPoolExecutor(cores) as pool:
        for done in [pool.submit(run, part) for part in parts]:
            done.result()


def _sum(pieces: list[_Piece]) -> None:
    import numpy as np

    for data in _mapped(pieces):
        words = np.frombuffer(data[: len(data) // 8 * 8], dtype=np.uint64)
        int(words.sum())
        del words


def _over_map(crc: Crc) -> Callable[[list[_Piece]], None]:
    def run(pieces: list[_Piece]) -> None:
        for data in _mapped(pieces):
            crc(data)

    return run


def _over_buffer(crc: Crc) -> Callable[[list[_Piece]], None]:
    def run(pieces: list[_Piece]) -> None:
        buffer = memoryview(bytearray(PIECE))
        for path, at, length in pieces:
            with path.open("rb", buffering=0) as file:
                os.preadv(file.fileno(), [buffer[:length]], at)
                crc(buffer[:length])

    return run


def _mapped(pieces: list[_Piece]) -> Iterator[memoryview]:
    path, mapped = None, None
    for where, at, length in pieces:
        if where != path:
            path = where
            with where.open("rb") as file:
                mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        assert mapped is not None
        yield mapped[at : at + length]
