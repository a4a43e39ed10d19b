"""The damaged stores of both corpora: apply a case, recover it, compare with Apache's outcome and with the truth.

The truth is not ours: it is what Apache read from the undamaged store (the dump), for every message whose record has
the same bytes in the damaged copy as in the undamaged one.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format.queue_unit import UNIT_SIZE
from engine.log.state import QueueState
from engine.repair.recover.apply import Applied, apply
from engine.repair.recover.plan import RecoverPlan
from engine.repair.recover.recover import plan_recover
from tests.compat import fixtures
from tests.support import golden

Case = dict[str, Any]

SMALL = 4 << 20
_UNIT = struct.Struct(">qiq")


def category(case: Case) -> str:
    """What was done to the store."""
    return str(case["category"])


def fixture_cases() -> list[Case]:
    """The cases of fixtures/differential.jsonl.xz."""
    return list(fixtures.cases())


def messages(case: Case) -> list[Case]:
    """What Apache read by queue from the undamaged store that a case starts from."""
    if case["id"].startswith("v"):
        return golden.dump(case["base"], "msg")
    return list(_messages(case["base"]))


@functools.lru_cache(maxsize=16)
def _messages(base: str) -> tuple[Case, ...]:
    return tuple(line for line in fixtures.dump(base) if line["type"] == "msg")


def config(store: Path, case: Case) -> StoreConfig:
    """The settings of a case's store: sizes are inferred."""
    found = StoreConfig(store_path_root_dir=store)
    if case["base"] == "lmq":
        found = found.with_changes(enable_lmq=True, enable_multi_dispatch=True)
    if case["base"] == "transient-ext":
        found = found.with_changes(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=1024)
    return found


def recover(store: Path, case: Case, *, cut: bool = True) -> tuple[RecoverPlan, Applied]:
    """Plan and apply."""
    disk = Disk()
    plan = plan_recover(disk, config(store, case), cut=cut)
    return plan, apply(disk, plan)


@dataclass(frozen=True)
class Outcome:
    """(min, max, hash over the units from the first file to max) of one queue; zeros for none."""

    min_offset: int = 0
    max_offset: int = 0
    units_sha256: str | None = None


def apache_queues(case: Case) -> dict[tuple[str, int], Outcome]:
    """Apache's outcome by queue."""
    return {(q["topic"], q["queueId"]): Outcome(q["min"], q["max"], q["unitsSha256"]) for q in case["queues"]}


def our_queues(store: Path, states: tuple[QueueState, ...]) -> dict[tuple[str, int], Outcome]:
    """Our outcome by queue, read back from the files."""
    return {
        (s.queue.topic, s.queue.queue_id): Outcome(s.min_offset, s.max_offset, _units_sha256(store, s)) for s in states
    }


def _files(store: Path, topic: str, queue_id: int) -> list[Path]:
    directory = store / "consumequeue" / topic / str(queue_id)
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _units_sha256(store: Path, state: QueueState) -> str | None:
    files = _files(store, state.queue.topic, state.queue.queue_id)
    if not files:
        return None
    data = b"".join(path.read_bytes() for path in files)
    length = state.max_offset * UNIT_SIZE - int(files[0].name)
    return hashlib.sha256(data[:length]).hexdigest() if length > 0 else None


class Numbered:
    """Files that are named by the offset of their first byte; small ones are read once, since a case asks thousands of
    times.
    """

    def __init__(self, directory: Path) -> None:
        found = sorted(path for path in directory.glob("[0-9]" * 20) if path.is_file())
        self._files = [(int(path.name), path.stat().st_size, path) for path in found]
        self._read = {path: path.read_bytes() for _, size, path in self._files if size <= SMALL}

    def read(self, at: int, size: int) -> bytes | None:
        """Up to `size` bytes from the offset on, of one file; None where there is none."""
        for start, length, path in self._files:
            if start <= at < start + length:
                if path in self._read:
                    return self._read[path][at - start : at - start + size]
                with path.open("rb") as file:
                    file.seek(at - start)
                    return file.read(size)
        return None


def whole_messages(case: Case, undamaged: Path, damaged: Path, low: int, high: int) -> list[Case]:
    """Messages between two physical offsets whose record the damage didn't touch."""
    before, now = Numbered(undamaged / "commitlog"), Numbered(damaged / "commitlog")
    return [
        line
        for line in messages(case)
        if low <= line["physicalOffset"] < high
        and before.read(line["physicalOffset"], line["size"]) == now.read(line["physicalOffset"], line["size"])
    ]


class Units:
    """The units of a store, as its files have them."""

    def __init__(self, store: Path) -> None:
        self._root = store / "consumequeue"
        self._queues: dict[tuple[str, int], Numbered] = {}

    def at(self, line: Case) -> tuple[int, int, int] | None:
        """(physical offset, size, tags code) at a message's queue offset."""
        queue = line["topic"], line["queueId"]
        if queue not in self._queues:
            self._queues[queue] = Numbered(self._root / line["topic"] / str(line["queueId"]))
        unit = self._queues[queue].read(line["queueOffset"] * UNIT_SIZE, UNIT_SIZE)
        return None if unit is None else _UNIT.unpack(unit)
