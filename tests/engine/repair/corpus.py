"""The damaged stores of both corpora: apply a case, recover it, compare with Apache's outcome and with the truth.

The truth is not ours: it is what Apache read from the undamaged store (the dump), for every message whose record has
the same bytes in the damaged copy as in the undamaged one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.format.queue_unit import UNIT_SIZE, decode_many
from engine.log.state import QueueState
from engine.repair.apply import Applied, apply
from engine.repair.plan import RecoverPlan
from engine.repair.recover import plan_recover
from tests.compat import fixtures
from tests.support import golden

Case = dict[str, Any]


def fixture_cases() -> list[Case]:
    """The cases of fixtures/differential.jsonl.xz."""
    return list(fixtures.cases())


def messages(case: Case) -> list[Case]:
    """What Apache read by queue from the undamaged store that a case starts from."""
    if case["id"].startswith("v"):
        return golden.dump(case["base"], "msg")
    return [line for line in fixtures.dump(case["base"]) if line["type"] == "msg"]


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


def whole_messages(case: Case, undamaged: Path, damaged: Path, low: int, high: int) -> list[Case]:
    """Messages between two physical offsets whose record the damage didn't touch."""
    return [
        line
        for line in messages(case)
        if low <= line["physicalOffset"] < high and _record(undamaged, line) == _record(damaged, line)
    ]


def _record(store: Path, line: Case) -> bytes | None:
    for path in (store / "commitlog").glob("[0-9]" * 20):
        start = int(path.name)
        if start <= line["physicalOffset"] < start + path.stat().st_size:
            with path.open("rb") as file:
                file.seek(line["physicalOffset"] - start)
                return file.read(line["size"])
    return None


def unit_at(store: Path, line: Case) -> tuple[int, int, int] | None:
    """The unit at a message's queue offset."""
    at = line["queueOffset"] * UNIT_SIZE
    for path in _files(store, line["topic"], line["queueId"]):
        start = int(path.name)
        if start <= at < start + path.stat().st_size:
            with path.open("rb") as file:
                file.seek(at - start)
                unit = decode_many(file.read(UNIT_SIZE))[0]
                return int(unit["physical_offset"]), int(unit["size"]), int(unit["tags_code"])
    return None
