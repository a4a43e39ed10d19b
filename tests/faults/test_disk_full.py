"""The disk is full: at any allocation or write, of an open store and of a recovery; and then not any more."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from engine.errors import DiskFull, NoSpaceToSave
from engine.files.disk import Disk
from engine.files.faults import SPACE_TAKING, FaultyDisk
from engine.files.file_system import Usage
from engine.files.operations import Doing
from engine.log.results import PutMessageStatus
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.services import dispatch
from engine.store import MessageStore
from tests.conftest import Store
from tests.engine.repair import corpus
from tests.faults.ledger import DrillLedger, Stored, check_recovered, check_store, settings
from tests.faults.test_killed_recovery import check_nothing_is_lost, damaged, end_of
from tests.support import stores
from tests.support.wide import sample

PATIENCE = 5.0
REFUSALS = {PutMessageStatus.CREATE_MAPEDFILE_FAILED, PutMessageStatus.SERVICE_NOT_AVAILABLE}
"""What a put may answer on a full disk: nothing was stored."""


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dispatch looks for space every 10 ms instead of every second."""
    monkeypatch.setattr(dispatch, "RETRY_MS", 10)


class Counting(FaultyDisk):
    """Counts what takes space."""

    taken = 0

    def begin(self, doing: Doing):
        self.taken += doing.operation in SPACE_TAKING
        return super().begin(doing)


def wait_dispatched_or_stuck(store: MessageStore) -> None:
    """Dispatch has come to the end, or says why it can't: what it takes of the disk doesn't hang on the moment."""
    deadline = time.monotonic() + PATIENCE
    while store.dispatch_lag and not store.errors and time.monotonic() < deadline:
        time.sleep(0.0005)


def put_until_refused(store: MessageStore, ledger: DrillLedger, most: int) -> int:
    """Put; how often it was refused, each time in a clear word."""
    refused = 0
    for _ in range(most):
        result = ledger.put(store)
        wait_dispatched_or_stuck(store)
        if not result.ok:
            refused += 1
            assert result.status in REFUSALS, (result.status, result.error)
            assert isinstance(result.error, DiskFull), result.error
            assert result.append is None
    return refused


def check_readable(store: MessageStore, acknowledged: list[Stored]) -> None:
    """Every acknowledged message is there by its physical offset; by queue it is as soon as there is space."""
    for one in acknowledged:
        found = store.look_message(one.physical_offset)
        assert found is not None
        assert found.properties["UNIQ_KEY"] == one.unique


def put_again(store: MessageStore, ledger: DrillLedger) -> None:
    """There is space again: puts work, without reopening, as soon as dispatch has seen it."""
    deadline = time.monotonic() + 20 * PATIENCE
    for _ in range(20):
        while not ledger.put(store).ok:
            assert time.monotonic() < deadline, store.errors
            time.sleep(0.01)


def put_through_a_full_disk(root: Path, disk: FaultyDisk, full_after: int) -> int:
    """A store whose disk is full after so many operations that take space; how many puts it refused."""
    ledger = DrillLedger(full_after)
    with MessageStore.open(settings(root), disk) as store:
        put_until_refused(store, ledger, 5)
        disk.fail_after(full_after)
        refused = put_until_refused(store, ledger, 40)
        check_readable(store, ledger.acknowledged)
        disk.heal()
        put_again(store, ledger)
        assert store.wait_dispatched()
        assert not store.errors
        assert not store.findings
        check_store(store, ledger.acknowledged, ledger)
    assert not (root / "abort").exists()
    check_recovered(root, ledger.acknowledged, ledger)
    return refused


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["map", "channel"])
def test_puts_on_a_full_disk(kind: str, tmp_path: Path) -> None:
    refused = []
    for full_after in sample([*range(12), *range(12, 100, 9)], 2, kind == "map"):
        root = tmp_path / str(full_after)
        root.mkdir()
        refused.append(put_through_a_full_disk(root, FaultyDisk(None, mapped=kind == "map"), full_after))
    assert sum(map(bool, refused)) * 22 > 10 * len(refused), "the disk was hardly ever full"


def test_a_full_disk_that_has_a_limit(fs: Any) -> None:
    root = Path("/store")
    fs.create_dir(root)
    fs.create_file("/ballast", st_size=100_000)
    fs.set_disk_usage(140_000)
    ledger = DrillLedger(3)
    with MessageStore.open(settings(root)) as store:
        assert put_until_refused(store, ledger, 100) > 20
        assert len(ledger.acknowledged) > 20
        check_readable(store, ledger.acknowledged)
        Path("/ballast").unlink()
        put_again(store, ledger)
        assert store.wait_dispatched()
        assert not store.errors
        check_store(store, ledger.acknowledged, ledger)
    check_recovered(root, ledger.acknowledged, ledger)


def test_opening_on_a_full_disk_says_so_and_works_later(tmp_path: Path) -> None:
    ledger = DrillLedger(4)
    with MessageStore.open(settings(tmp_path)) as store:
        put_until_refused(store, ledger, 60)
    (tmp_path / "abort").touch()
    whole = stores.contents(tmp_path / "commitlog")
    for directory in ("consumequeue", "index"):
        for path in sorted((tmp_path / directory).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    counting = Counting(None)
    for full_after in range(0, 200, 10):
        disk = FaultyDisk(None)
        disk.fail_after(full_after)
        try:
            MessageStore.open(settings(tmp_path), disk).close()
        except DiskFull:
            assert stores.contents(tmp_path / "commitlog") == whole
        else:
            break
    assert full_after > 10
    with MessageStore.open(settings(tmp_path), counting) as store:
        check_store(store, ledger.acknowledged, ledger)


@pytest.mark.wide
@pytest.mark.leaves
@pytest.mark.parametrize(("first", "name"), [*enumerate(("queues-lost", "index-file-lost", "all-at-once", "ext"))])
def test_recovery_on_a_full_disk(first: int, name: str, fixture_copy: Store, tmp_path: Path) -> None:
    case, root = damaged(name, fixture_copy)
    whole = stores.copy(root, tmp_path / "whole")
    counting = Counting(None)
    apply(counting, plan_recover(counting, corpus.config(whole, case), cut=True))
    expected = end_of(whole, case)
    for full_after in sample(range(0, counting.taken, max(1, counting.taken // 7)), 2, first):
        copy = stores.copy(root, tmp_path / f"full-{full_after}")
        disk = FaultyDisk(None)
        disk.fail_after(full_after)
        with pytest.raises(DiskFull) as full:
            apply(disk, plan_recover(disk, corpus.config(copy, case), cut=True))
        assert full.value.exit_code == 5
        apply(Disk(), plan_recover(Disk(), corpus.config(copy, case), cut=True))
        assert end_of(copy, case) == expected
        check_nothing_is_lost(root, copy)
        shutil.rmtree(copy)


class Cramped(Disk):
    """Says that there are only so many bytes left."""

    def __init__(self, usable: int) -> None:
        super().__init__()
        self._usable = usable

    def usage(self, path: str) -> Usage:
        return Usage(1 << 30, (1 << 30) - self._usable, self._usable)


def test_no_room_to_save_what_goes_changes_nothing(fixture_copy: Store) -> None:
    case, root = damaged("all-at-once", fixture_copy)
    before = stores.snapshot(root)
    disk = Cramped(1 << 12)
    with pytest.raises(NoSpaceToSave) as refused:
        apply(disk, plan_recover(disk, corpus.config(root, case), cut=True))
    assert refused.value.exit_code == 4
    assert refused.value.next is not None
    assert "--salvage-dir" in refused.value.next.why
    assert stores.snapshot(root) == before
    apply(Disk(), plan_recover(Disk(), corpus.config(root, case), cut=True))
    assert not plan_recover(Disk(), corpus.config(root, case)).changed
