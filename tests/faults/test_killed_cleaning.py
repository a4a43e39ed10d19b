"""The process is killed, or the power cut, at every change that a cleaning round makes: what is in the log is there."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.files.durable import Lose
from engine.files.faults import FaultyDisk
from engine.files.file_system import Usage
from engine.files.operations import Doing, Operation
from engine.format.queue_unit import UNIT_SIZE, decode
from engine.store import MessageStore
from tests.faults.ledger import QUEUES, TOPICS, Clock, DrillLedger, check_recovered, recover, settings
from tests.support.wide import sample

PUTS = 120
PAUSES = {"delete_commit_log_files_interval": 0, "delete_consume_queue_files_interval": 0}


def tight(path: str) -> Usage:
    """Any file may go at once, and puts are taken still."""
    del path
    return Usage(100 << 20, 86 << 20, 14 << 20)


class Tight(Disk):
    """A disk that is used to 86 %."""

    def usage(self, path: str) -> Usage:
        return tight(path)


class Copying(FaultyDisk):
    """While `into` is set: copies the store before each change, as a kill (or a power cut) there leaves it."""

    def __init__(self, root: Path, lose: Lose, rng: random.Random) -> None:
        super().__init__(str(root))
        self._lose = lose
        self._rng = rng
        self.into: Path | None = None
        self._numbers = itertools.count()
        self.copies: list[Path] = []
        self.kinds: set[tuple[Operation, str]] = set()

    def usage(self, path: str) -> Usage:
        return tight(path)

    def begin(self, doing: Doing):
        with self._model_lock:
            before = self.changes_seen
            if self.into is not None:
                copy = self.into / f"copy{next(self._numbers)}"
                note = super().begin(doing)
                if self.changes_seen != before:
                    self.crash_copy(str(copy), self._rng, self._lose)
                    self.copies.append(copy)
                    part = Path(doing.path).relative_to(self.root).parts[0]
                    self.kinds.add((doing.operation, part))
                return note
            return super().begin(doing)

    @property
    def root(self) -> Path:
        return self._image.root_path


def in_every_queue(ledger: DrillLedger, start: int) -> bool:
    """Whether each queue has a message behind `start` (physical)."""
    there = {(one.topic, one.queue_id) for one in ledger.acknowledged if one.physical_offset >= start}
    return len(there) == len(TOPICS) * QUEUES


def log_start(root: Path) -> int:
    """The log's first byte, and that nothing is missing behind it."""
    names = sorted(int(path.name) for path in (root / "commitlog").iterdir())
    assert names == list(range(names[0], names[-1] + 1, 16384))
    return names[0]


def check_followed(root: Path) -> None:
    """No queue file is left whose last unit points before the log, unless it is the last one."""
    low = log_start(root)
    for directory in (root / "consumequeue").glob("*/*"):
        first, *others = sorted(directory.iterdir())
        if others:
            assert decode(first.read_bytes()[-UNIT_SIZE:]).physical_offset >= low, directory


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("lose", ["none", "all", "random"], ids=["kill", "cut-all", "cut-some"])
def test_killed_at_any_change_of_a_round(lose: Lose, tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    ledger = DrillLedger(11, body=5500)
    disk = Copying(root, lose, random.Random(5))
    quiet = settings(root, **PAUSES).with_changes(flush_interval_consume_queue=600_000)  # nobody else changes anything
    with MessageStore.open(quiet, disk, Clock()) as store:
        for _ in range(PUTS):
            assert ledger.put(store).ok
        while not in_every_queue(ledger, store.log.files.files[-1].file_from_offset):
            ledger.body = 10
            assert ledger.put(store).ok
        assert store.wait_dispatched()
        assert store.index is not None
        store.index.flush_all()
        files = len(store.log.files.files)
        assert files > 12
        disk.into = tmp_path
        assert store.clean.clean() == 10
        assert store.clean.clean() == files - 11
        disk.into = None
        assert not store.errors
    check_followed(root)
    gone = {part for operation, part in disk.kinds if operation is Operation.UNLINK}
    assert gone >= {"commitlog", "consumequeue", "index"}
    assert len(disk.copies) > 60
    starts = set()
    for copy in sample(disk.copies, 3 if lose == "none" else 5):
        recover(copy)
        low = log_start(copy)
        starts.add(low)
        expected = [one for one in ledger.acknowledged if one.physical_offset >= low]
        assert expected
        check_recovered(copy, expected, ledger)
        with MessageStore.open(settings(copy, **PAUSES), Tight()) as store:
            while store.clean.clean():
                pass
            assert not store.errors
        check_followed(copy)
        shutil.rmtree(copy)
    assert len(starts) > 5
