"""A store on a disk that is really full: `python -m tests.faults.full_disk PLACE KIND`, with a small tmpfs at PLACE.

Ends with 0 when all went as it must; a SIGBUS, a traceback or a failed assertion does not. Prints how many puts were
refused. See test_full_disk.py for how it comes to its tmpfs.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from engine.config import FlushDiskType
from engine.drill.ledger import missing
from engine.errors import DiskFull, NoSpaceToSave
from engine.files.disk import Disk
from engine.format.message import Message
from engine.log.results import PutMessageStatus, PutResult
from engine.read_store import ReadStore
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.repair.salvage.undo import plan_undo, undo
from engine.services import clean, dispatch
from engine.services.running_flags import Flag
from engine.store import MessageStore
from tests.faults.ledger import DrillLedger, check_recovered, check_store, settings
from tests.support import stores
from tests.support.checking import check_clean

CHUNK = 4096
PATIENCE = 200.0
REFUSALS = {PutMessageStatus.CREATE_MAPEDFILE_FAILED, PutMessageStatus.SERVICE_NOT_AVAILABLE}
ASYNC = {"flush_disk_type": FlushDiskType.ASYNC_FLUSH, "flush_interval_commit_log": 5}
POOL = {**ASYNC, "transient_store_pool_enable": True, "commit_interval_commit_log": 5}


class Place:
    """The tmpfs: a store, and a ballast that takes what is left but for some bytes."""

    def __init__(self, place: Path) -> None:
        self.root = place / "store"
        self.root.mkdir()
        self._ballast = place / "ballast"

    def fill(self, leave: int = 0) -> None:
        """Take all the room there is, then give `leave` bytes back."""
        with self._ballast.open("ab", buffering=0) as file:
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(CHUNK))
            file.truncate(max(0, file.tell() - leave))

    def free(self) -> None:
        """Give it all back."""
        self._ballast.unlink()


def check_refused(result: PutResult) -> None:
    """In a clear word, and nothing was stored."""
    assert result.status in REFUSALS, (result.status, result.error)
    assert isinstance(result.error, DiskFull), result.error
    assert result.append is None


def put_until_refused(store: MessageStore, ledger: DrillLedger, times: int) -> int:
    """Put until the store has refused so many; how many."""
    refused = 0
    while refused < times:
        result = ledger.put(store)
        if not result.ok:
            check_refused(result)
            refused += 1
    return refused


def put_again(store: MessageStore, ledger: DrillLedger, count: int = 60) -> None:
    """Puts work, as soon as the store has seen that there is room."""
    deadline = time.monotonic() + PATIENCE
    for _ in range(count):
        while not (result := ledger.put(store)).ok:
            check_refused(result)
            assert time.monotonic() < deadline, store.errors
            time.sleep(0.002)


def in_the_middle_of_a_load(place: Place, *, mapped: bool = True, **changes: object) -> int:
    """The disk fills up below a running store; then there is space again."""
    ledger = DrillLedger(21)
    config = settings(place.root).with_changes(**changes)
    refused = 0
    with MessageStore.open(config, Disk(mapped=mapped)) as store:
        put_again(store, ledger)
        for leave in (0, CHUNK, 5 * CHUNK, 9 * CHUNK, 20 * CHUNK):
            place.fill(leave)
            refused += put_until_refused(store, ledger, 40)
            readable = store.log.max_offset
            for one in ledger.acknowledged:
                if one.end <= readable:  # with a pool the rest is in memory, and waits for room
                    found = store.look_message(one.physical_offset)
                    assert found is not None
                    assert found.properties["UNIQ_KEY"] == one.unique
            place.free()
            put_again(store, ledger)
        store.flush()
        assert store.wait_dispatched(PATIENCE * 1000)
        assert not store.errors
        assert not store.findings
        check_store(store, ledger.acknowledged, ledger)
    check_recovered(place.root, ledger.acknowledged, ledger)
    return refused


def opened_with_holes(place: Place) -> int:
    """Files that are nothing but holes behind their data, as a copy has them: a put must not meet a missing block."""
    ledger = DrillLedger(22)
    refused = 0
    for turn in range(4):
        with MessageStore.open(settings(place.root)) as store:
            put_again(store, ledger, 25)
            assert store.wait_dispatched(PATIENCE * 1000)
        for path in [path for path in place.root.rglob("*") if path.is_file()]:
            subprocess.run(["fallocate", "--dig-holes", path], check=True)
        place.fill(turn * CHUNK)
        try:
            with MessageStore.open(settings(place.root)) as store:
                refused += put_until_refused(store, ledger, 10)
                place.free()
                put_again(store, ledger)
        except DiskFull:
            refused += 1
            place.free()
    check_recovered(place.root, ledger.acknowledged, ledger)
    return refused


def kept_free_by_the_clean_service(place: Place) -> int:
    """Many times what fits goes through: above 85 % the oldest files go, whatever their age."""
    clean.FIRST_ROUND_MS = 1
    ledger = DrillLedger(23, body=4000)
    at_once = {"clean_resource_interval": 1, "delete_commit_log_files_interval": 0}
    config = settings(place.root).with_changes(**at_once, delete_consume_queue_files_interval=0)
    refused = 0
    deadline = time.monotonic() + 3 * PATIENCE
    with MessageStore.open(config, cleaning=True) as store:
        for _ in range(1500):
            while not (result := ledger.put(store)).ok:
                check_refused(result)
                refused += 1
                assert time.monotonic() < deadline, store.errors
                time.sleep(0.001)
        assert store.log.max_offset > 1 << 20
        assert store.clean.status.log_files > 20
        assert store.wait_dispatched(PATIENCE * 1000)
        assert not store.flags.is_set(Flag.NOT_WRITEABLE)
        low = store.log.min_offset
    kept = [one for one in ledger.acknowledged if one.physical_offset >= low]
    assert kept
    check_recovered(place.root, kept, ledger)
    return refused


def closed_and_opened_again(place: Place) -> int:
    """Full when the log needs its next file, closed cleanly: no repair is asked for, all is read, puts come back."""
    ledger = DrillLedger(24)
    config = settings(place.root, mapped_file_size_consume_queue=20_000, max_index_num=2000)  # only the log rolls
    with MessageStore.open(config) as store:
        put_again(store, ledger, 60)
    with MessageStore.open(config) as store:  # which has its checkpoint by now
        place.fill()
        refused = put_until_refused(store, ledger, 1)
    assert not plan_recover(Disk(), config).changed
    assert not (place.root / "abort").exists()
    with MessageStore.open(config, cleaning=True) as store:
        check_store(store, ledger.acknowledged, ledger)
        refused += put_until_refused(store, ledger, 3)
        place.free()
        put_again(store, ledger)
    check_clean(place.root, config)
    with ReadStore(config) as view:
        check_store(view, ledger.acknowledged, ledger)
    return refused


def opened_with_queues_behind(place: Place) -> int:
    """Full when a queue needs its next file: the store opens, what is in the queues is read, the rest follows later."""
    ledger = DrillLedger(25)
    config = settings(place.root)
    with contextlib.suppress(DiskFull), MessageStore.open(config) as store:  # closing says that dispatch is behind
        put_again(store, ledger, 5)
        place.fill()
        put_until_refused(store, ledger, 1)
    shutil.rmtree(place.root / "consumequeue")
    place.fill()
    with MessageStore.open(config, cleaning=True) as store:
        assert store.dispatch_lag > 0
        for one in ledger.acknowledged:
            assert store.look_message(one.physical_offset) is not None
        refused = put_until_refused(store, ledger, 3)
        place.free()
        put_again(store, ledger)
        assert store.wait_dispatched(PATIENCE * 1000)
        check_store(store, ledger.acknowledged, ledger)
    check_recovered(place.root, ledger.acknowledged, ledger)
    return refused


def repaired_with_no_byte_free(place: Place) -> int:
    """A bridge needs no room in the store: what it saves lies elsewhere; it is found, taken back and pruned there."""
    from rstore_cli.app import main

    ledger = DrillLedger(26)
    config = settings(place.root)
    with MessageStore.open(config) as store:
        put_again(store, ledger, 60)
    one = ledger.acknowledged[20]
    size = config.mapped_file_size_commit_log
    with (place.root / "commitlog" / f"{one.physical_offset // size * size:020d}").open("r+b") as file:
        file.seek(one.physical_offset % size + 95)
        file.write(b"\xff\xff\xff")
    before = stores.contents(place.root)
    place.fill()

    def rstore(*words: str) -> int:
        return main(["--store", str(place.root), *words, "-q"])

    with tempfile.TemporaryDirectory() as elsewhere:
        bridge = ("recover", "--bridge", "--yes")
        assert rstore(*bridge) == 4
        assert stores.contents(place.root) == before
        assert rstore(*bridge, "--salvage-dir", str(place.root / "here")) == 2
        assert rstore(*bridge, "--salvage-dir", elsewhere) == 0
        assert rstore("check") == 0
        assert rstore("undo", "--yes") == 0
        after = stores.contents(place.root)
        assert {name: after[name] for name in before} == before
        assert rstore(*bridge, "--salvage-dir", elsewhere) == 0
        assert rstore("salvage", "list") == 0
        place.free()
        check_clean(place.root, config)
        with ReadStore(config) as view:
            assert list(missing(view, [some for some in ledger.acknowledged if some is not one])) == []
        assert rstore("salvage", "prune", "--keep", "0", "--yes") == 0
    return 1


def saved_from_holes(place: Place) -> int:
    """An index of few keys, copied without its zeros: a repair saves its pages, no more, and undo needs no more."""
    rng = Random(27)
    config = settings(place.root, max_hash_slot_num=100_000, max_index_num=1000)
    with tempfile.TemporaryDirectory() as elsewhere:
        with MessageStore.open(config.with_changes(store_path_root_dir=Path(elsewhere))) as store:
            for _ in range(50):
                assert store.put(Message("T", b"body", properties={"KEYS": f"{rng.getrandbits(64):016x}"})).ok
        command = ["cp", "-a", "--sparse=always", f"{elsewhere}/.", str(place.root)]
        subprocess.run(command, check=True)
    (index,) = (place.root / "index").iterdir()
    with index.open("r+b") as file:
        file.seek(4)
        file.write(b"\xff" * 20)
    before = stores.contents(place.root)
    taken = index.stat().st_blocks * 512
    assert 30 * CHUNK < taken < index.stat().st_size // 2, "keys are spread over the pages"
    place.fill(taken // 2)
    with pytest.raises(NoSpaceToSave):
        apply(Disk(), plan_recover(Disk(), config, whole=True))
    assert stores.contents(place.root) == before
    place.free()
    place.fill(index.stat().st_size + 20 * CHUNK)  # the new index has blocks for all of it; the old one's are free then
    salvage = apply(Disk(), plan_recover(Disk(), config, whole=True)).salvage
    assert salvage is not None
    assert sum(path.stat().st_blocks * 512 for path in Path(salvage).glob(f"*-{index.name}")) <= taken + CHUNK
    place.free()
    check_clean(place.root, config)
    place.fill(taken + 10 * CHUNK)  # it takes away what is new when all else is back
    undo(Disk(), plan_undo(Disk(), config))
    after = stores.contents(place.root)
    assert {name: after[name] for name in before} == before
    place.free()
    apply(Disk(), plan_recover(Disk(), config, whole=True))
    check_clean(place.root, config)
    return 1


def told_by_the_daemon(place: Place) -> int:
    """No room for the log's next file on a disk that is far from full: the metrics say so before, while and after."""
    from tests.engine.broker.client import Client, daemon  # 0.7 s, which no other kind's process needs
    from tests.engine.broker.test_http import control, scrape

    config = settings(
        place.root, mapped_file_size_commit_log=256 << 10, mapped_file_size_consume_queue=20_000, max_index_num=2000
    )

    async def run() -> None:
        async with daemon(place.root, config=config, metrics_port=0) as found:
            client = await Client.to(found.listening.broker)

            async def told() -> tuple[float, float, object]:
                async with asyncio.timeout(60):
                    while (seen := await scrape(found))["rstore_disk_used_ratio", ("CL",)] >= 0.85:
                        await asyncio.sleep(0.01)  # a file that is tried takes what there is, and gives it back
                _, said = await control(place.root, "GET", "/status")
                return seen["rstore_writeable", ()], seen["rstore_log_files_fit", ()], said["writeable"]

            async def put() -> bool:
                return (await client.put("T", bytes(2000))).code == 0

            assert await put()
            assert (await told())[::2] == (1, True)
            place.fill(200 << 10)
            assert await told() == (1, 0, True)
            while await put():
                pass
            assert await told() == (0, 0, False)
            assert [one.code for one in found.health.reasons] == ["disk-full"]
            place.free()
            writeable, fit, said = await told()
            assert (writeable, said) == (1, True)
            assert fit >= 1
            assert await put()

    asyncio.run(run())
    check_clean(place.root, config)
    return 1


KINDS: dict[str, Callable[[Place], int]] = {
    "map": in_the_middle_of_a_load,
    "channel": lambda place: in_the_middle_of_a_load(place, mapped=False),
    "async": lambda place: in_the_middle_of_a_load(place, **ASYNC),
    "pool": lambda place: in_the_middle_of_a_load(place, **POOL),
    "ext": lambda place: in_the_middle_of_a_load(
        place, enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=1000
    ),
    "holes": opened_with_holes,
    "cleaning": kept_free_by_the_clean_service,
    "closed": closed_and_opened_again,
    "behind": opened_with_queues_behind,
    "repaired": repaired_with_no_byte_free,
    "sparse": saved_from_holes,
    "served": told_by_the_daemon,
}


def main(argv: list[str]) -> None:
    """Run one kind."""
    dispatch.RETRY_MS = 5
    place, kind = argv
    print(KINDS[kind](Place(Path(place))))


if __name__ == "__main__":
    main(sys.argv[1:])
