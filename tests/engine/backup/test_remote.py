"""Backups of a running broker that is reached over the wire alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.backup.check import check_repository
from engine.backup.create import follow as following
from engine.backup.create.copier import StoreCopier
from engine.backup.create.create import Created, CreateOptions, create_from
from engine.backup.create.follow import BackupFollower, FollowState
from engine.backup.create.remote import RemoteOrigin
from engine.backup.repository import Repository
from engine.broker.serve import Daemon
from engine.client.remote_broker import RemoteBroker
from engine.errors import PeerLost, StorageError
from engine.files.disk import Disk
from engine.format import fastjson
from tests.engine.backup import repositories
from tests.engine.broker.client import Client, daemon
from tests.engine.opening import assert_sound, small

SIZES = {"mapped_file_size_commit_log": 1 << 18}


def serve(root: Path, work: Callable[[Daemon, Callable[[int], None]], None]) -> None:
    """Call `work` in a thread beside a daemon, with what puts messages into it."""

    async def run() -> None:
        config = small(root, **SIZES)
        async with daemon(root, config=config) as serving:
            loop = asyncio.get_running_loop()
            client = await Client.to(serving.listening.broker)

            async def put(count: int) -> None:
                for i in range(count):
                    assert (await client.put("Remote", b"%06d" % i * 100, i % 4)).code == 0

            await loop.run_in_executor(
                None, work, serving, lambda count: asyncio.run_coroutine_threadsafe(put(count), loop).result()
            )
            client.writer.close()

    asyncio.run(run())
    assert_sound(small(root, **SIZES))


def back_up(repository: Repository, address: str, parent: Path) -> Created:
    origin = RemoteOrigin(Disk(), RemoteBroker(address), None, str(parent))
    return create_from(Disk(), origin, repository, CreateOptions())


def log_of(root: Path, end: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))[:end]


def test_one_snapshot_and_another(tmp_path: Path) -> None:
    repository = repositories.new(tmp_path / "repository")
    spool = tmp_path / "spool"
    spool.mkdir()
    made: list[Created] = []

    def work(serving: Daemon, put: Callable[[int], None]) -> None:
        put(800)
        made.append(back_up(repository, serving.listening.broker, spool))
        put(100)
        made.append(back_up(repository, serving.listening.broker, spool))
        end = serving.broker.store.log.max_offset
        assert made[1].snapshot.end == end > 2 * SIZES["mapped_file_size_commit_log"]

    serve(tmp_path / "store", work)
    first, second = made
    assert (first.snapshot.store, first.snapshot.messages) == ("broker-a", 800)
    assert second.snapshot.messages == 900
    assert second.reused >= 2 * SIZES["mapped_file_size_commit_log"]
    assert second.read < first.read
    assert not list(spool.iterdir())
    restored = repositories.bring_back(repository, tmp_path / "new", second.name.snapshot_id)
    assert restored.refusal is None
    end = second.snapshot.end
    assert log_of(tmp_path / "new", end) == log_of(tmp_path / "store", end)
    assert_sound(small(tmp_path / "new", **SIZES))
    assert not check_repository(repository, 1.0).bad
    topics = fastjson.loads((tmp_path / "new/config/topics.json").read_text())
    assert "Remote" in topics["topicConfigTable"]
    assert {Path(file.path).name for file in second.snapshot.files} == {
        "topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json"
    }  # fmt: skip


def test_it_is_followed_through_lost_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_hour", lambda _: "")  # an hour that ends meanwhile has a snapshot of its own
    repository = repositories.new(tmp_path / "repository")
    states: list[FollowState] = []

    def work(serving: Daemon, put: Callable[[int], None]) -> None:
        origin = RemoteOrigin(Disk(), RemoteBroker(serving.listening.broker), None, str(tmp_path))
        copier = StoreCopier(Disk(), origin, repository, CreateOptions())
        follower = BackupFollower(origin, copier, repository, origin.name, 0.01, states.append)
        put(10)
        follower.begin()
        for number in range(6):
            put(120)
            if number % 2:
                origin._reader.close()
            follower._round()
            assert states[-1].end == serving.broker.store.log.max_offset
        origin.close()

    serve(tmp_path / "store", work)
    end = states[-1].end
    assert end > 2 * SIZES["mapped_file_size_commit_log"]
    assert len(repository.snapshots()) == 1
    repositories.bring_back(repository, tmp_path / "new")
    assert log_of(tmp_path / "new", end) == log_of(tmp_path / "store", end)
    assert not check_repository(repository, 1.0).bad


def test_another_store_at_the_same_address_is_read_from_its_start(tmp_path: Path) -> None:
    repository = repositories.new(tmp_path / "repository")
    made: list[Created] = []

    def work(serving: Daemon, put: Callable[[int], None]) -> None:
        put(800 + 37 * len(made))
        origin = RemoteOrigin(Disk(), RemoteBroker(serving.listening.broker), None, str(tmp_path))
        origin.root = "broker:10911"
        made.append(create_from(Disk(), origin, repository, CreateOptions()))

    for name in ("one", "other"):
        serve(tmp_path / name, work)
    assert made[1].reused == 0
    assert any("is another one" in note for note in made[1].notes)
    repositories.bring_back(repository, tmp_path / "new", made[1].name.snapshot_id)
    end = made[1].snapshot.end
    assert log_of(tmp_path / "new", end) == log_of(tmp_path / "other", end)


def test_a_broker_that_is_not_there_or_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PeerLost):
        back_up(repositories.new(tmp_path / "repository"), "127.0.0.1:1", tmp_path)

    async def settings(_: object) -> dict[str, str]:
        raise StorageError("no")

    def work(serving: Daemon, _: Callable[[int], None]) -> None:
        monkeypatch.setattr("engine.client.master_tables.settings", settings)
        with pytest.raises(StorageError, match="--acl FILE"):
            RemoteOrigin(Disk(), RemoteBroker(serving.listening.broker))

    serve(tmp_path / "store", work)
