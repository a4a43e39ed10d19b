"""Quick figures for this machine (`make bench`): encoding, writing and scanning a log, in a temporary directory.

The log is made of equal messages of one size; each figure is the best of three runs, warm: it measures the engine, not
the disk. `python -m tests.bench.quick --mib 64` makes a smaller log.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from engine.files.disk import Disk
from engine.format import message
from engine.format.message import Message
from engine.format.names import segment_name
from engine.log.derive import Deriver, DeriveRules, QueueNumbers
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog, Segment

MIB = 1 << 20
BEST_OF = 3


def write_log(path: Path, size: int, body_size: int) -> int:
    """A full log file of `size` bytes at offset 0; the number of records in it."""
    put = Message("BenchTopic", bytes(range(256)) * (body_size // 256 + 1), properties={"KEYS": "key-0", "TAGS": "a"})
    put = Message(put.topic, put.body[:body_size], properties=put.properties)
    record = message.encode(put)
    count = (size - message.BLANK_SIZE) // len(record)
    with path.open("wb") as file:
        for i in range(count):
            message.patch(record, 0, queue_offset=i, physical_offset=i * len(record), store_timestamp=1_700_000_000_000)
            file.write(record)
        left = size - count * len(record)
        file.write(message.encode_blank(left) + bytes(left - message.BLANK_SIZE))
    return count


def best(run: Callable[[], int]) -> float:
    """Seconds of the fastest of a few runs; each must see the same number of records."""
    seconds, counts = [], set()
    for _ in range(BEST_OF):
        start = time.perf_counter()
        counts.add(run())
        seconds.append(time.perf_counter() - start)
    assert len(counts) == 1
    return min(seconds)


def scan(path: Path, size: int, *, check_crc: bool, derive: bool = False) -> int:
    """Scan the file; the number of sound records."""
    found = 0
    deriver = Deriver(DeriveRules(), QueueNumbers())
    with ClosedLog(Disk(), [Segment(0, size, str(path))]) as log:
        for event in Scanner(log, check_crc=check_crc).scan(0):
            if isinstance(event, RecordBatch):
                found += len(event)
                if derive:
                    deriver.derive(event)
    return found


def encode(count: int, body: bytes) -> int:
    """Encode `count` messages."""
    put = Message("BenchTopic", body, properties={"KEYS": "key-0", "TAGS": "a"})
    for _ in range(count):
        message.encode(put)
    return count


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.quick", description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="size of the log (MiB)")
    size = parser.parse_args().mib * MIB
    print(f"log of {size // MIB} MiB, best of {BEST_OF}\n")
    print(f"{'what':31}{'body':>8}{'MB/s':>10}{'records/s':>14}")
    with tempfile.TemporaryDirectory(prefix="rstore-bench-") as directory:
        path = Path(directory) / segment_name(0)
        for body_size in (1024, 128):
            count = write_log(path, size, body_size)
            encoded = min(count, 200_000)
            runs: list[tuple[str, int, float, Callable[[], int]]] = [
                ("scan, CRC not checked", count, size, lambda: scan(path, size, check_crc=False)),
                ("scan with CRC (verify)", count, size, lambda: scan(path, size, check_crc=True)),
                ("scan with CRC, derive", count, size, lambda: scan(path, size, check_crc=True, derive=True)),
                (
                    "encode (put, before the lock)",
                    encoded,
                    size * encoded / count,
                    lambda n=encoded, body=bytes(body_size): encode(n, body),  # type: ignore[misc]
                ),
            ]
            for what, records, amount, run in runs:
                seconds = best(run)
                print(f"{what:31}{body_size:>8}{amount / seconds / 1e6:>10,.0f}{records / seconds:>14,.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
