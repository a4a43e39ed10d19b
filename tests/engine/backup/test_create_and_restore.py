"""A restored store is the one that was backed up: byte by byte, or exactly what was stored until a moment."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from engine.backup.check import check_repository
from engine.backup.restore.offsets import Offsets
from engine.config import of_store
from engine.errors import (
    CannotRepair,
    FormatError,
    InvalidArgument,
    NotFound,
    OutsideStore,
    Refused,
    StorageError,
    StoreLocked,
)
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.files.lock import StoreLock
from engine.files.raw_file import RawFile
from engine.format import fastjson
from engine.format.hosts import LOOPBACK
from engine.format.message import make_msg_id
from engine.format.names import segment_name
from engine.inspect.store.survey import survey
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog
from engine.store import MessageStore
from tests.engine.backup import repositories
from tests.engine.opening import assert_sound, bodies, message, small
from tests.rstore_cli.test_hostile_store import seen
from tests.support import stores
from tests.support.config import write_config

Store = Callable[[str], Path]


def records(store: Path) -> list[tuple[int, int]]:
    """Physical offset and storeTimestamp of each sound record."""
    disk = Disk()
    files = survey(disk, of_store(store))
    if not files.log:
        return []
    with ClosedLog(disk, files.log) as log:
        return [
            (int(offset), int(time))
            for event in Scanner(log).scan(files.log[0].offset, resume=True)
            if isinstance(event, RecordBatch)
            for offset, time in zip(event.offsets(), event.store_timestamps(), strict=True)
        ]


@pytest.mark.parametrize("name", ["clean-small", "crashed-small", "lmq", "transient-ext"])
def test_as_it_was(fixture_store: Store, tmp_path: Path, name: str) -> None:
    store = fixture_store(name)
    before = stores.snapshot(store)
    repository = repositories.new(tmp_path / "repository")
    created = repositories.back_up(repository, store)
    assert stores.snapshot(store) == before, "a backup wrote into the store"
    repositories.bring_back(repository, tmp_path / "new")
    assert repositories.log_of(tmp_path / "new") == repositories.log_of(store)
    assert records(tmp_path / "new") == records(store)
    assert created.snapshot.records == len(records(store))
    assert_sound(of_store(tmp_path / "new"))
    assert not check_repository(repository, 1.0).bad
    for path in (store / "config").glob("*") if (store / "config").is_dir() else ():
        assert (tmp_path / "new" / "config" / path.name).exists()


def test_a_second_backup_reads_the_last_segment_alone(fixture_copy: Store, tmp_path: Path) -> None:
    store = fixture_copy("clean-small")
    repository = repositories.new(tmp_path / "repository")
    first = repositories.back_up(repository, store)
    second = repositories.back_up(repository, store)
    assert second.snapshot.added == 0
    assert second.reused > 0
    assert second.read < first.read
    assert second.snapshot.messages == first.snapshot.messages
    assert repositories.back_up(repository, store, full=True).read == first.read


def test_each_of_many_moments(fixture_store: Store, tmp_path: Path) -> None:
    """Exactly the records stored until then; queues, index and all are sound."""
    store = fixture_store("crashed-small")
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, store)
    every = records(store)
    times = sorted({time for _, time in every})
    chosen = [times[0] - 1, *Random(7).sample(times, 5), times[-1]]
    for number, moment in enumerate(chosen):
        new = tmp_path / f"new-{number}"
        repositories.bring_back(repository, new, time_ms=moment)
        assert records(new) == [one for one in every if one[1] <= moment]
        assert_sound(of_store(new))


def test_to_an_offset_and_before_a_message(fixture_store: Store, tmp_path: Path) -> None:
    store = fixture_store("clean-small")
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, store)
    every = records(store)
    at = every[300][0]
    repositories.bring_back(repository, tmp_path / "one", offset=at)
    repositories.bring_back(repository, tmp_path / "two", offset=at - 1)
    repositories.bring_back(repository, tmp_path / "three", before=make_msg_id(LOOPBACK, at))
    for name in ("one", "two", "three"):
        assert records(tmp_path / name) == every[:300]
    with pytest.raises(NotFound):
        repositories.bring_back(repository, tmp_path / "four", before="00" * 16 + "FF")
    with pytest.raises(InvalidArgument):
        repositories.bring_back(repository, tmp_path / "four", offset=1 << 50)
    with pytest.raises(InvalidArgument):
        repositories.bring_back(repository, tmp_path / "four", time_ms=1 << 50)


def made(root: Path, first: int, count: int) -> None:
    """Puts messages; afterwards a group has read them all."""
    with MessageStore.open(small(root)) as store:
        for number in range(count):
            store.put(message(f"{number}", **{"UNIQ_KEY": f"ID{first + number}"}))
        end = first + count
    (root / "config").mkdir(exist_ok=True)
    table = {"offsetTable": {"T@readers": {"0": end}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(table))


def offset_of(root: Path) -> int:
    table = fastjson.loads((root / "config" / "consumerOffset.json").read_text())
    return int(table["offsetTable"]["T@readers"]["0"])


@pytest.mark.leaves("config-missing")
@pytest.mark.parametrize(("mode", "expected"), [("as-were", 15), ("no-repeats", 15), ("no-misses", 10)])
def test_what_groups_read_next(tmp_path: Path, mode: str, expected: int) -> None:
    """Ten messages, a snapshot, ten more, another; the second is restored to before the sixteenth message."""
    repository = repositories.new(tmp_path / "repository")
    made(tmp_path / "store", 0, 10)
    repositories.back_up(repository, small(tmp_path / "store"))
    made(tmp_path / "store", 10, 10)
    repositories.back_up(repository, small(tmp_path / "store"))
    repositories.bring_back(repository, tmp_path / "new", offsets=Offsets(mode), before="ID15")
    assert offset_of(tmp_path / "new") == expected
    with MessageStore.open(of_store(tmp_path / "new")) as store:
        assert len(bodies(store)) == 15


def test_beside_a_store_that_is_written_to(tmp_path: Path) -> None:
    """Each snapshot is a sound store, a prefix of what was put; nothing is asked of who writes."""
    repository = repositories.new(tmp_path / "repository")
    config = small(tmp_path / "store")
    with MessageStore.open(config) as store:
        stop = threading.Event()

        def put() -> None:
            number = 0
            while not stop.wait(0.002):
                store.put(message(f"{number:05}-" + "x" * 300))
                number += 1

        writer = threading.Thread(target=put)
        writer.start()
        try:
            snapshots = []
            while len(snapshots) < 4 or snapshots[-1].snapshot.messages < 250:
                snapshots.append(repositories.back_up(repository, config))
        finally:
            stop.set()
            writer.join()
        every = bodies(store)
    assert all(one.snapshot.is_live and not one.snapshot.damaged for one in snapshots)
    for number, one in enumerate((snapshots[0], snapshots[2], snapshots[-1])):
        new = tmp_path / f"new-{number}"
        repositories.bring_back(repository, new, one.name.snapshot_id)
        with MessageStore.open(of_store(new)) as restored:
            got = bodies(restored)
        assert got == every[: len(got)]
        assert len(got) == one.snapshot.messages
        assert_sound(of_store(new))


def test_a_record_whose_properties_are_not_there_yet_is_left_out(tmp_path: Path) -> None:
    """A broker copies a record into its file: its body may be there before its properties."""
    config = small(tmp_path / "store")
    with MessageStore.open(config) as store:
        for number in range(5):
            store.put(message(f"{number}", A="value"))
        (first,) = (tmp_path / "store" / "commitlog").glob("0*0")
        with first.open("r+b") as file:
            data = file.read()
            at = data.rindex(b"value")
            file.seek(at)
            file.write(bytes(5))
        repository = repositories.new(tmp_path / "repository")
        created = repositories.back_up(repository, config)
        with first.open("r+b") as file:
            file.seek(at)
            file.write(b"value")
    assert created.snapshot.is_live
    assert created.snapshot.messages == 4
    assert repositories.back_up(repository, config).snapshot.messages == 5


@pytest.mark.leaves("log-damage", "unit-missing", "index-missing")
def test_a_damaged_store_is_backed_up_as_it_is(fixture_copy: Store, tmp_path: Path) -> None:
    store = fixture_copy("clean-small")
    segment = store / "commitlog" / "00000000000000131072"
    data = bytearray(segment.read_bytes())
    data[5000:5200] = b"\xaa" * 200
    segment.write_bytes(data)
    repository = repositories.new(tmp_path / "repository")
    created = repositories.back_up(repository, store)
    assert created.snapshot.damaged == 1
    assert any("damage" in note for note in created.notes)
    restored = repositories.bring_back(repository, tmp_path / "new")
    assert isinstance(restored.refusal, Refused)
    assert repositories.log_of(tmp_path / "new") == repositories.log_of(store)


def test_not_into_what_holds_something(fixture_store: Store, tmp_path: Path) -> None:
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, fixture_store("lmq"))
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "notes.txt").write_text("mine")
    with pytest.raises(Refused):
        repositories.bring_back(repository, tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["notes.txt"]


@pytest.mark.leaves
@pytest.mark.parametrize("way", ["link", "hard link", "folder"])
@pytest.mark.parametrize("step", ["restore:piece", "restore:named"])
def test_nothing_goes_through_what_others_put_into_a_restore_under_way(
    fixture_copy: Store, tmp_path: Path, way: str, step: str
) -> None:
    backed_up = fixture_copy("clean-small")
    write_config(backed_up)
    (backed_up / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"T@g": {"0": 10**6}}}))
    repository = repositories.new(tmp_path / "repository", None)
    repositories.back_up(repository, backed_up)
    store, theirs = tmp_path / "new", tmp_path / "theirs"
    disk = FaultyDisk(None)
    disk.kill_at(step)
    with pytest.raises(Killed):
        repositories.bring_back(repository, store, disk=disk)
    theirs.mkdir()
    for name in ("topics.json", "consumerOffset.json"):
        (theirs / name).write_bytes((backed_up / "config" / name).read_bytes() + b"\n")
        (theirs / name).chmod(0o640)
    shutil.rmtree(store / "config", ignore_errors=True)
    if way == "folder":
        (store / "config").symlink_to(theirs)
        os.lchown(store / "config", 12345, 12345)
    else:
        (store / "config").mkdir()
        put = os.link if way == "hard link" else os.symlink
        put(theirs / "topics.json", store / "config" / "topics.json")
        put(theirs / "consumerOffset.json", store / "config" / "consumerOffset.json")
    before = seen(theirs)
    with contextlib.suppress(OutsideStore):
        repositories.bring_back(repository, store)
    assert seen(theirs) == before


def test_what_stands_in_the_way_of_queues_is_no_damage_of_the_log(fixture_store: Store, tmp_path: Path) -> None:
    repository = repositories.new(tmp_path / "repository", None)
    repositories.back_up(repository, fixture_store("clean-small"))
    disk = FaultyDisk(None)
    disk.kill_at("restore:named")
    with pytest.raises(Killed):
        repositories.bring_back(repository, tmp_path / "new", disk=disk)
    (tmp_path / "new" / "salvage").write_bytes(b"in the way")
    with pytest.raises(CannotRepair, match="a file instead of a directory"):
        repositories.bring_back(repository, tmp_path / "new")
    (tmp_path / "new" / "salvage").unlink()
    assert repositories.bring_back(repository, tmp_path / "new").refusal is None
    assert_sound(of_store(tmp_path / "new"))


def test_a_log_begun_meanwhile_is_not_taken_for_the_restored_one(fixture_store: Store, tmp_path: Path) -> None:
    """As by a broker that is started on the directory before the restore that was killed is run again."""
    store, new = fixture_store("crashed-small"), tmp_path / "new"
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, store)
    disk = FaultyDisk(None)
    disk.kill_at("restore:written")
    with pytest.raises(Killed):
        repositories.bring_back(repository, new, disk=disk)
    begun = new / "commitlog" / segment_name(0)
    begun.parent.mkdir()
    begun.write_bytes(bytes(131072))
    before = stores.snapshot(new)
    with pytest.raises(Refused, match="another log"):
        repositories.bring_back(repository, new)
    assert stores.snapshot(new) == before
    shutil.rmtree(begun.parent)
    assert repositories.bring_back(repository, new).refusal is None
    assert repositories.log_of(new) == repositories.log_of(store)
    assert_sound(of_store(new))


def test_links_in_config_are_not_followed(fixture_copy: Store, tmp_path: Path) -> None:
    store = fixture_copy("lmq")
    (tmp_path / "secret").write_text("not the store's")
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").symlink_to(tmp_path / "secret")
    repository = repositories.new(tmp_path / "repository")
    created = repositories.back_up(repository, store)
    assert any("a link" in path for path in created.snapshot.skipped)
    assert "config/topics.json" not in {file.path for file in created.snapshot.files}
    (store / "config" / "topics.json").unlink()


def test_the_end_of_a_queue_that_has_expired_is_kept(tmp_path: Path) -> None:
    """Its next queue offset is known from nowhere else."""
    config = small(tmp_path / "store")
    with MessageStore.open(config) as store:
        for number in range(7):
            store.put(message(f"{number}", topic="Old"))
        for _ in range(300):
            store.put(message("x" * 400, topic="New"))
        end = 7
    (tmp_path / "store" / "commitlog" / "00000000000000000000").unlink()
    with MessageStore.open(config) as store:
        assert store.max_offset("Old", 0) == end
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, config)
    repositories.bring_back(repository, tmp_path / "new")
    with MessageStore.open(of_store(tmp_path / "new")) as store:
        assert store.max_offset("Old", 0) == end
        assert store.max_offset("New", 0) == 300


def test_who_prunes_is_alone(fixture_store: Store, tmp_path: Path) -> None:
    from engine.backup.leases import Lease
    from engine.backup.prune import prune

    repository = repositories.new(tmp_path / "repository")
    with Lease(repository.objects, "a backup"), Lease(repository.objects, "another"), pytest.raises(StoreLocked):
        prune(repository, lambda _: True)
    with Lease(repository.objects, "backup prune", removes=True), pytest.raises(StoreLocked):
        repositories.back_up(repository, fixture_store("lmq"))
    assert list(repository.objects.list("leases")) == []


class Expiring(Disk):
    """Deletes the log's first segment when it is opened to be read, as retention may while a backup is made."""

    def open_reader(self, path: str) -> RawFile:
        if path.endswith("commitlog/00000000000000000000") and self.exists(path):
            self.unlink(path)
        return super().open_reader(path)


def test_retention_beside_a_backup(fixture_copy: Store, tmp_path: Path) -> None:
    """What was deleted meanwhile is not in the snapshot, and is told; the rest is a sound store."""
    store = fixture_copy("clean-small")
    every = records(store)
    repository = repositories.new(tmp_path / "repository")
    with StoreLock(Disk(), str(store)):
        created = repositories.back_up(repository, store, Expiring(), full=True)
    assert created.snapshot.start == 131072
    assert any("deleted segment 0" in note for note in created.notes)
    repositories.bring_back(repository, tmp_path / "new")
    assert records(tmp_path / "new") == [one for one in every if one[0] >= 131072]
    assert_sound(of_store(tmp_path / "new"))
    shutil.rmtree(store)


class Rotten(Disk):
    """Can't read one page of the second segment."""

    def open_reader(self, path: str) -> RawFile:
        file = super().open_reader(path)
        return _RottenFile(file) if path.endswith("00000000000000131072") else file  # type: ignore[return-value]


class _RottenFile:
    def __init__(self, file: RawFile) -> None:
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def _demand(self, start: int, length: int) -> None:
        if start < 8192 + 4096 and start + length > 8192:
            raise StorageError("reading: input/output error", path=self._file.path, offset=8192)

    def read(self, offset: int, length: int) -> memoryview:
        self._demand(offset, length)
        return self._file.read(offset, length)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        self._demand(offset, len(buffer))
        return self._file.read_into(buffer, offset)


@pytest.mark.leaves("log-damage", "unit-missing", "index-missing")
def test_a_page_that_the_disk_cannot_read(fixture_store: Store, tmp_path: Path) -> None:
    """All but that page is in the backup, it is told, and the next backup reads the segment again."""
    store = fixture_store("clean-small")
    repository = repositories.new(tmp_path / "repository")
    created = repositories.back_up(repository, store, Rotten())
    assert any("could not read 1 page" in note for note in created.notes)
    repositories.bring_back(repository, tmp_path / "new")
    expected = bytearray((store / "commitlog" / "00000000000000131072").read_bytes())
    expected[8192 : 8192 + 4096] = bytes(4096)
    assert (tmp_path / "new" / "commitlog" / "00000000000000131072").read_bytes() == expected
    repositories.back_up(repository, store)
    repositories.bring_back(repository, tmp_path / "whole")
    assert repositories.log_of(tmp_path / "whole") == repositories.log_of(store)


@pytest.mark.leaves("record-suspect")
def test_times_before_1970(fixture_copy: Store, tmp_path: Path) -> None:
    """The top bit of a storeTimestamp rots, which no CRC covers; a file has an impossible time: both are restored."""
    store = fixture_copy("clean-small")
    path = store / "commitlog" / "00000000000000131072"
    data = bytearray(path.read_bytes())
    data[56] ^= 0x80  # storeTimestamp of the segment's first record
    path.write_bytes(data)
    os.utime(path, ns=(-(10**9), -(10**9)))
    repository = repositories.new(tmp_path / "repository")
    repositories.back_up(repository, store)
    assert not check_repository(repository, 1.0).bad
    repositories.bring_back(repository, tmp_path / "new")
    assert repositories.log_of(tmp_path / "new") == repositories.log_of(store)


def test_what_nobody_could_read_is_no_snapshot(fixture_store: Store, tmp_path: Path) -> None:
    repository = repositories.new(tmp_path / "repository")
    snapshot = repositories.back_up(repository, fixture_store("clean-small")).snapshot
    with pytest.raises(FormatError, match="segments overlap"):
        repository.put_snapshot(replace(snapshot, segments=(*snapshot.segments, snapshot.segments[0])))
    with pytest.raises(FormatError, match="don't add up"):
        repository.put_segment(replace(repository.get_segment(snapshot.segments[0].pieces), pieces=()))
    assert len(repository.snapshots()) == 1


def test_a_restore_does_not_hold_all_files_of_a_log_open(tmp_path: Path) -> None:
    """A log may have more segments than a process may have files."""
    config = replace(small(tmp_path / "store"), mapped_file_size_commit_log=4096)
    with MessageStore.open(config) as store:
        for i in range(120):
            assert store.put(message(b"%03d" % i + bytes(2000))).ok
    assert_sound(config)
    repository = repositories.new(tmp_path / "repository", None)
    repositories.back_up(repository, config)
    most = 0

    class Counting(Disk):
        def step(self, name: str) -> None:
            nonlocal most
            count = 0
            for one in os.listdir("/proc/self/fd") if name == "restore:piece" else ():
                with contextlib.suppress(FileNotFoundError):  # another thread has closed it
                    count += ".restoring" in os.readlink(f"/proc/self/fd/{one}")
            most = max(most, count)

    repositories.bring_back(repository, tmp_path / "new", disk=Counting())
    assert len(os.listdir(tmp_path / "new" / "commitlog")) > 60
    assert 0 < most < 24
    assert repositories.log_of(tmp_path / "new") == repositories.log_of(tmp_path / "store")
