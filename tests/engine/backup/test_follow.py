"""Repositories that follow a store: a store that grows, rolls, stops, loses its log end; a repository that fails."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.backup.check import check_repository
from engine.backup.create import copier
from engine.backup.create import follow as following
from engine.backup.create.copier import StoreCopier
from engine.backup.create.create import CreateOptions
from engine.backup.create.follow import BackupFollower, FollowState
from engine.backup.create.lag import LagReports
from engine.backup.create.origin import LocalOrigin
from engine.backup.leases import Lease
from engine.backup.manifest import parts_of
from engine.backup.objects.place import objects_at
from engine.backup.prune import plan_forget, prune
from engine.backup.repository import Repository, SnapshotName, open_repository
from engine.backup.retention import Keep
from engine.backup.status import backup_lags
from engine.config import StoreConfig
from engine.errors import NotFound, StorageError, StoreLocked
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk
from engine.files.operations import Operation
from engine.log.scan import Scanner
from engine.log.source import ClosedLog, Segment
from engine.repair.change import Ending, carry_out
from engine.repair.truncate.change import TruncateChange
from engine.store import MessageStore
from tests.engine.backup import repositories
from tests.engine.broker.client import Client, daemon
from tests.engine.opening import assert_sound, message, small

WAIT_S = 60
SEGMENT = 1 << 18
HOUR = following._hour


@pytest.fixture(autouse=True)
def _one_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the tests run: of an hour that ends meanwhile a snapshot would stay."""
    monkeypatch.setattr(following, "_hour", lambda _: "")


class Followed:
    """A store of ours that is open, and a follower of it whose rounds are called for.

    Attributes:
        states: what it told, round by round.
    """

    def __init__(self, root: Path, repository: Repository, **sizes: int) -> None:
        self.config = small(root, **{"mapped_file_size_commit_log": SEGMENT, **sizes})
        self.store = MessageStore.open(self.config)
        self.repository = repository
        self.states: list[FollowState] = []
        self.origin: LocalOrigin
        self.follow()

    def follow(self, origin: type[LocalOrigin] = LocalOrigin) -> None:
        """Another follower, as after a restart."""
        disk = Disk()
        self.origin = origin(disk, self.config, "a")
        self.copier = StoreCopier(disk, self.origin, self.repository, CreateOptions("a"))
        self.follower = BackupFollower(self.origin, self.copier, self.repository, "a", 0.01, self.states.append)

    def put(self, count: int, size: int = 300) -> None:
        for i in range(count):
            assert self.store.put(message(bytes([i % 251]) * size), wait=False).append

    def round(self) -> FollowState:
        """One round that goes well."""
        self.follower._round()
        return self.states[-1]

    def close(self) -> None:
        self.origin.close()
        self.store.close()


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Callable[..., Followed]]:
    made: list[Followed] = []

    def get(**sizes: int) -> Followed:
        made.append(Followed(tmp_path / "store", repositories.new(tmp_path / "repository", None), **sizes))
        return made[-1]

    yield get
    for one in made:
        one.close()
        assert_sound(one.config)
        assert not check_repository(one.repository, 1.0).bad


def log_of(root: Path, end: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))[:end]


def assert_a_prefix(one: Followed, new: Path) -> None:
    """The newest snapshot, restored, is the log up to its end."""
    end = one.states[-1].end
    restored = repositories.bring_back(one.repository, new)
    assert restored.refusal is None
    assert log_of(new, end) == log_of(Path(one.config.store_path_root_dir), end)
    assert_sound(small(new, mapped_file_size_commit_log=one.config.mapped_file_size_commit_log))


class Timeless(LocalOrigin):
    """Knows no file times, as of a broker on another machine."""

    def mtime_ns(self, segment: Segment) -> int:
        return 0


def test_rounds_after_a_long_log_have_kernels(
    followed: Callable[..., Followed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round alone is short; many of them are judged as one long log is, and what they store is the same."""
    monkeypatch.setattr(copier, "LONG", SEGMENT // 2)
    scanners: list[bool | None] = []

    def scanner(log: ClosedLog, *, max_message_size: int, kernels: bool | None = None) -> Scanner:
        scanners.append(kernels)
        return Scanner(log, max_message_size=max_message_size, kernels=kernels)

    monkeypatch.setattr(copier, "Scanner", scanner)
    one = followed()
    one.follower.begin()
    for number in range(12):
        one.put(100, 300 + number)
        assert one.round().end == one.store.log.max_offset
    assert scanners[:2] == [None, None]
    assert scanners[-1] is True
    newest = one.repository.snapshot(one.repository.snapshots()[-1])
    assert (newest.records, newest.messages, newest.damaged) == (1200, 1200, 0)
    assert_a_prefix(one, tmp_path / "new")


@pytest.mark.parametrize("origin", [LocalOrigin, Timeless])
@pytest.mark.parametrize("seen", [True, False])
def test_a_log_that_is_cut_and_grows_again(
    seen: bool, origin: type[LocalOrigin], followed: Callable[..., Followed], tmp_path: Path
) -> None:
    """Truncated within a segment that was complete, whether a round sees that, or what came after it alone."""
    one = followed()
    one.follow(origin)
    one.put(900)
    at = one.store.log.max_offset
    assert SEGMENT < at < 2 * SEGMENT
    one.put(600)
    one.follower.begin()
    one.store.close()
    cut = carry_out(TruncateChange(to_offset=at), Disk(), one.config)
    assert cut.ending is Ending.APPLIED
    if seen:
        one.round()
    one.store = MessageStore.open(one.config)
    if seen:
        one.put(10, 310)
        one.round()
    one.put(1500, 311)
    assert one.round().end > 3 * SEGMENT
    assert_a_prefix(one, tmp_path / "new")


def test_while_the_store_grows_and_rolls(followed: Callable[..., Followed], tmp_path: Path) -> None:
    one = followed()
    one.put(10)
    one.follower.begin()
    stop = threading.Event()
    thread = threading.Thread(target=one.follower.run, args=(stop,))
    thread.start()
    try:
        for _ in range(30):
            one.put(100)
            seen = len(one.states)
            until(lambda seen=seen: len(one.states) > seen or not thread.is_alive())
    finally:
        stop.set()
        thread.join()
    state = one.states[-1]
    assert state.end == one.store.log.max_offset > 3 * SEGMENT
    assert (state.failures, len(one.repository.snapshots())) == (0, 1)
    assert sum(one.created is not None for one in one.states) == state.snapshots > 5
    assert_a_prefix(one, tmp_path / "new")
    (lag,), _ = backup_lags(Disk(), one.repository)
    assert (lag.lag_bytes, lag.lag_ms, lag.log_end) == (0, 0, state.end)


def test_what_does_not_change_is_not_stored_again(followed: Callable[..., Followed]) -> None:
    one = followed()
    one.put(10)
    one.follower.begin()
    first = one.states[-1]
    for _ in range(5):
        state = one.round()
        assert (state.created, state.snapshot, state.snapshots) == (None, first.snapshot, 1)
        assert state.covered_s >= first.covered_s
    one.put(1)
    assert one.round().created is not None
    config = Path(one.config.store_path_root_dir) / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text("{}")
    assert one.round().created is None
    one.follower._looked -= following.CONFIG_S
    created = one.round().created
    assert created is not None
    assert "config/topics.json" in {file.path for file in created.snapshot.files}
    one.follower._made -= following.IDLE_S
    assert one.round().created is not None
    assert len(one.repository.snapshots()) == 1


def test_a_round_stores_about_what_came(followed: Callable[..., Followed], tmp_path: Path) -> None:
    """A thousand rounds of a message each: parts are few, what was written is a few times the log, pruning frees it."""
    one = followed(mapped_file_size_commit_log=8 << 20)
    one.put(1)
    one.follower.begin()
    noise = random.Random(5)
    for _ in range(40):
        assert one.store.put(message(noise.randbytes(2000)), wait=False).append
        one.round()
    end = one.states[-1].end
    (piece,) = one.repository.get_segment(one.states[-1].created.snapshot.segments[0].pieces).pieces  # type: ignore[union-attr]
    assert piece is not None
    assert len(parts_of(piece)) <= 17
    stored = sum(entry.size for entry in one.repository.objects.list("pieces"))
    assert end < stored < 3 * end
    before = check_repository(one.repository, 1.0)
    assert before.unused > 30
    prune(one.repository, lambda _: True)
    assert check_repository(one.repository, 1.0).unused == 0
    assert sum(entry.size for entry in one.repository.objects.list("pieces")) < 1.1 * end
    one.put(3)
    one.round()
    assert_a_prefix(one, tmp_path / "new")


def test_the_last_snapshot_of_each_hour_stays(
    followed: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_hour", HOUR)
    one = followed()
    one.put(1)
    start = 1_764_201_600_000  # the start of an hour
    at = start
    monkeypatch.setattr(Disk, "now_ms", lambda _: at)
    one.follower.begin()
    for minutes in (20, 59, 60, 61, 119, 240, 241):
        at = start + minutes * 60_000
        one.put(1)
        one.round()
    assert [(name.time_ms - start) // 60_000 for name in one.repository.snapshots()] == [59, 119, 241]
    one.follow()
    one.follower.begin()
    assert len(one.repository.snapshots()) == 4  # of what an earlier run left none is forgotten


def test_a_repository_that_fails_for_a_while(tmp_path: Path) -> None:
    disk = FaultyDisk(None)
    repositories.new(tmp_path / "repository", None)
    repository = open_repository(objects_at(disk, str(tmp_path / "repository")), lambda: None)
    one = Followed(tmp_path / "store", repository)
    try:
        one.put(10)
        one.follower.begin()
        good = one.states[-1]
        stop = threading.Event()
        thread = threading.Thread(target=one.follower.run, args=(stop,))
        disk.fail_when(lambda doing: doing.operation is Operation.WRITE)
        thread.start()
        one.put(2000)
        until(lambda: one.states[-1].failures >= 1)
        assert one.states[-1].error is not None
        assert (one.states[-1].covered_s, one.states[-1].end) == (good.covered_s, good.end)
        disk.heal()
        until(lambda: one.states[-1].end == one.store.log.max_offset)
        assert one.states[-1].failures == 0
        stop.set()
        thread.join()
        assert len(repository.snapshots()) == 1
        assert_a_prefix(one, tmp_path / "new")
        disk.fail_when(lambda doing: doing.operation is Operation.WRITE)
        one.put(1)
        with pytest.raises(StorageError):  # the last round says that it could not be made
            one.follower.run(stop)
        disk.heal()
    finally:
        one.close()
    assert not check_repository(repository, 1.0).bad


def test_pruned_between_two_rounds_and_meanwhile(followed: Callable[..., Followed], tmp_path: Path) -> None:
    one = followed()
    one.put(2000)
    one.follower.begin()
    for _ in range(4):
        one.put(300)
        one.round()
        prune(one.repository, lambda _: True)
        assert check_repository(one.repository, 1.0).unused == 0
    one.put(300)
    with Lease(one.repository.objects, "test", removes=True), pytest.raises(StoreLocked):
        one.round()
    one.round()
    assert_a_prefix(one, tmp_path / "new")


def test_pruned_while_it_follows(followed: Callable[..., Followed], tmp_path: Path) -> None:
    """Prune waits for the end of a round, and the next one for the end of prune."""
    one = followed()
    one.put(100)
    one.follower.begin()
    stop = threading.Event()
    thread = threading.Thread(target=one.follower.run, args=(stop,))
    thread.start()
    try:
        for _ in range(4):
            one.put(300)
            seen = one.states[-1].snapshots
            until(lambda seen=seen: one.states[-1].snapshots > seen)
            prune(one.repository, lambda _: True)
    finally:
        stop.set()
        thread.join()
    assert one.states[-1].end == one.store.log.max_offset
    assert_a_prefix(one, tmp_path / "new")


def test_what_a_failed_round_stored_may_be_pruned(tmp_path: Path) -> None:
    disk = FaultyDisk(None)
    repositories.new(tmp_path / "repository", None)
    repository = open_repository(objects_at(disk, str(tmp_path / "repository")), lambda: None)
    one = Followed(tmp_path / "store", repository)
    one.put(10)
    one.follower.begin()
    one.put(3000)
    disk.fail_when(lambda doing: doing.operation is Operation.REPLACE and "/snapshots/" in doing.path)
    with pytest.raises(StorageError):
        one.round()
    disk.heal()
    assert prune(repository, lambda _: True).names
    one.put(10)
    one.round()
    assert not check_repository(repository, 1.0).bad
    assert_a_prefix(one, tmp_path / "new")
    one.close()


def test_its_last_snapshot_is_forgotten_and_pruned(followed: Callable[..., Followed], tmp_path: Path) -> None:
    one = followed()
    one.put(2000)
    one.follower.begin()
    one.repository.objects.delete(f"snapshots/{name.name}" for name in one.repository.snapshots())
    assert prune(one.repository, lambda _: True).names
    one.put(10)
    one.round()
    assert not check_repository(one.repository, 1.0).bad
    assert_a_prefix(one, tmp_path / "new")


def test_segments_that_retention_deletes(followed: Callable[..., Followed]) -> None:
    one = followed()
    one.put(3000)
    one.follower.begin()
    first = one.states[-1].created
    assert first is not None
    assert first.snapshot.start == 0
    while one.store.log.files.files[0].file_from_offset < 2 * SEGMENT:  # a flush or the dispatch may hold one
        one.store.clean.expire_before(2 * SEGMENT)
        time.sleep(0.01)
    start = one.store.log.min_offset
    assert start == 2 * SEGMENT
    one.put(10)
    created = one.round().created
    assert created is not None
    assert (created.snapshot.start, created.snapshot.end) == (start, one.store.log.max_offset)


def test_a_broker_that_stops_and_comes_back_with_another_log_end(
    followed: Callable[..., Followed], tmp_path: Path
) -> None:
    one = followed()
    one.put(100)
    one.follower.begin()
    early = one.store.log.max_offset
    one.put(100)
    one.round()
    one.store.close()
    one.follower._made -= following.IDLE_S
    one.origin._asked -= 100
    stopped = one.round().created
    assert stopped is not None
    assert (stopped.snapshot.is_live, stopped.snapshot.end) == (False, one.states[-1].end)
    # The machine crashed before these were on its disk: the broker goes on at an earlier end.
    path = next((Path(one.config.store_path_root_dir) / "commitlog").iterdir())
    with path.open("r+b") as file:
        file.seek(early)
        file.write(bytes(SEGMENT - early))
    (Path(one.config.store_path_root_dir) / "abort").touch()
    one.store = MessageStore.open(one.config)
    one.put(150, 50)
    created = one.round().created
    assert created is not None
    assert created.snapshot.end == one.store.log.max_offset
    one.put(100)
    one.round()
    assert_a_prefix(one, tmp_path / "new")


def test_a_log_end_that_parts_while_it_is_followed(followed: Callable[..., Followed], tmp_path: Path) -> None:
    one = followed()
    one.put(200)
    one.follower.begin()
    end = one.store.log.max_offset
    one.store.close()
    path = next((Path(one.config.store_path_root_dir) / "commitlog").iterdir())
    with path.open("r+b") as file:
        file.seek(end // 2)
        file.write(bytes(SEGMENT - end // 2))
    (Path(one.config.store_path_root_dir) / "abort").touch()
    one.store = MessageStore.open(one.config)
    one.put(300, 77)
    created = one.round().created
    assert created is not None
    assert any("another log end" in note for note in created.notes)
    assert_a_prefix(one, tmp_path / "new")


def test_the_lag_is_told(tmp_path: Path) -> None:
    """In a file for node_exporter, and by the daemon of the store."""

    async def run() -> None:
        async with daemon(tmp_path / "store") as serving:
            client = await Client.to(serving.listening.broker)
            assert (await client.put("Told", b"body")).code == 0
            live = serving._operations._live  # type: ignore[union-attr]
            assert live.backup_lag is None
            await asyncio.get_running_loop().run_in_executor(None, follow, serving.listening.broker)
            lag_s, lag_bytes = live.backup_lag
            assert 60 <= lag_s < 120
            assert lag_bytes == 0
            assert (await client.put("Told", b"body")).code == 0
            assert live.backup_lag[1] > 0
            client.writer.close()

    def follow(_: str) -> None:
        disk = Disk()
        config = StoreConfig(store_path_root_dir=tmp_path / "store")
        repository = repositories.new(tmp_path / "repository")
        origin = LocalOrigin(disk, config, "a")
        reports = LagReports(disk, str(tmp_path / "rstore.prom"), tmp_path / "store")
        states: list[Any] = []
        follower = BackupFollower(
            origin, StoreCopier(disk, origin, repository, CreateOptions('a"\n')), repository, 'a"\n', 1, states.append
        )
        follower.begin()
        origin.close()
        import dataclasses

        reports.tell(dataclasses.replace(states[0], covered_s=time.time() - 60))
        assert reports.error is None

    asyncio.run(run())
    text = (tmp_path / "rstore.prom").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == 4
    assert all(line.startswith("rstore_backup_") and '{store="a\\"\\n"} ' in line for line in lines)
    assert 60 <= float(lines[0].rpartition(" ")[2]) < 120


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_what_is_asked_while_a_follower_forgets(
    followed: Callable[..., Followed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest snapshot is forgotten between the list and the read of it: the one after it is there."""
    one = followed()
    one.put(10)
    one.follower.begin()
    reader = open_repository(objects_at(Disk(), str(tmp_path / "repository")), lambda: None)
    list_now = reader.snapshots

    def listed() -> list[SnapshotName]:
        names = list_now()
        if len(asked) < 1:
            asked.append(one.put(1))
            one.round()
        return names

    asked: list[None] = []
    monkeypatch.setattr(reader, "snapshots", listed)
    for ask in (
        lambda: reader.find("latest", "a")[0].short == one.states[-1].snapshot,
        lambda: reader.find("latest")[0].short == one.states[-1].snapshot,
        lambda: not check_repository(reader, 1.0).bad,
        lambda: not plan_forget(reader, (), Keep(last=1), None).forgotten,
        lambda: [lag.name.short for lag in backup_lags(Disk(), reader)[0]] == [one.states[-1].snapshot],
    ):
        asked.clear()
        assert ask()
        assert asked
    with pytest.raises(NotFound, match="no snapshot of store"):
        reader.find("latest", "b")
