"""Backups against what is not ours: a real S3 server, and stores of Apache's broker, backed up while it serves."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.backup.check import check_repository
from engine.backup.create.copier import StoreCopier
from engine.backup.create.create import CreateOptions
from engine.backup.create.follow import BackupFollower, FollowState
from engine.backup.create.origin import LocalOrigin, StoreOrigin
from engine.backup.create.remote import RemoteOrigin
from engine.backup.objects.place import objects_at
from engine.backup.prune import forget, plan_forget, prune
from engine.backup.repository import open_repository
from engine.backup.retention import Keep
from engine.client.remote_broker import RemoteBroker
from engine.config import of_store
from engine.errors import NotARepository
from engine.files.disk import Disk
from tests.compat import real_broker, toolchain
from tests.compat.replicas import Produced, consume, produce, until
from tests.compat.s3_server import CREDENTIALS, served
from tests.engine.backup import repositories
from tests.engine.opening import assert_sound

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

STANDS_STILL_S = 60
SETTINGS = """
brokerName=broker-a
mappedFileSizeCommitLog=4194304
mappedFileSizeConsumeQueue=60000
maxHashSlotNum=50000
maxIndexNum=200000
"""


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server with the bucket `backups`, which the environment leads to: its port."""
    with served(tmp_path) as port:
        for name, value in {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", **CREDENTIALS}.items():
            monkeypatch.setenv(name, value)
        yield port


def test_in_object_storage(s3: int, fixture_store, tmp_path: Path) -> None:
    repository = repositories.new("s3://backups/a")
    store = fixture_store("crashed-small")
    repositories.back_up(repository, store)
    assert repositories.back_up(repository, store).snapshot.added == 0
    repositories.back_up(repository, fixture_store("clean-small"))
    assert len(repository.snapshots()) == 3
    assert not check_repository(repository, 1.0).bad
    forget(repository, plan_forget(repository, (), Keep(last=1), None))
    prune(repository, lambda _: True)
    result = check_repository(repository, 1.0)
    assert (result.bad, result.unused, result.snapshots) == ([], 0, 1)
    repositories.bring_back(repository, tmp_path / "new")
    assert repositories.log_of(tmp_path / "new") == repositories.log_of(fixture_store("clean-small"))
    assert_sound(of_store(tmp_path / "new"))
    elsewhere = objects_at(Disk(), "s3://backups/elsewhere")
    with pytest.raises(NotARepository):
        open_repository(elsewhere, lambda: None)


def test_what_goes_wrong_with_it_is_one_line(s3: int) -> None:
    repositories.new("s3://backups/a")
    env = {**os.environ, "RSTORE_REPO": "s3://backups/a", "RSTORE_REPO_KEY": repositories.SECRET.decode()}
    command = [sys.executable, "-m", "rstore_cli.app", "backup", "list"]
    for changed, exit_code in (
        ({}, 0),
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, 5),
        ({"RSTORE_REPO": "s3://no-such-bucket/a"}, 4),
        ({"RSTORE_REPO_KEY": "another key"}, 4),
    ):
        ran = subprocess.run(command, env=env | changed, capture_output=True, text=True, timeout=240, check=False)
        assert ran.returncode == exit_code, (changed, ran)
        assert len(ran.stderr.splitlines()) == (exit_code != 0), (changed, ran)


def test_beside_apaches_broker_under_load(tmp_path: Path) -> None:
    """Three snapshots while messages come: each is a prefix of the log, byte by byte; Apache starts on the last one."""
    try:
        toolchain.apache_broker()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    repository = repositories.new(tmp_path / "repository")
    with real_broker.name_server(tmp_path / "names") as names:
        with real_broker.broker(tmp_path / "store", names, SETTINGS) as broker:
            sent: list[Produced] = [produce(broker.broker, "Load", 100, name="first")]
            load = threading.Thread(target=lambda: sent.append(produce(broker.broker, "Load", 30_000, name="load")))
            load.start()
            snapshots = [repositories.back_up(repository, of_store(tmp_path / "store")) for _ in range(3)]
            load.join()
            snapshots.append(repositories.back_up(repository, of_store(tmp_path / "store")))
            assert all(one.snapshot.is_live and not one.snapshot.damaged for one in snapshots)
            assert snapshots[-1].snapshot.messages == sum(len(one.bodies) for one in sent)
            log = whole_log(tmp_path / "store")
        for number, one in enumerate(snapshots):
            new = tmp_path / f"new-{number}"
            restored = repositories.bring_back(repository, new, one.name.snapshot_id)
            assert restored.refusal is None
            got = whole_log(new)[: one.snapshot.end]
            assert got == log[: one.snapshot.end]
            assert_sound(of_store(new))
        with real_broker.broker(tmp_path / "new-3", names, SETTINGS) as broker:
            bodies = consume(broker.broker, "Load")
            assert bodies == set().union(*(one.bodies for one in sent))
            assert produce(broker.broker, "Load", 10, name="after").codes == {0}
    assert not check_repository(repository, 1.0).bad


def test_followed_beside_apaches_broker_and_from_afar(tmp_path: Path) -> None:
    """Under load, through segments that roll and a restart, never standing still; what is restored is a prefix."""
    try:
        toolchain.apache_broker()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    repository = repositories.new(tmp_path / "repository")
    states: dict[str, list[FollowState]] = {"beside": [], "afar": []}
    stop = threading.Event()
    disk = Disk()
    with real_broker.name_server(tmp_path / "names") as names:
        port = real_broker.free_port(4)
        with real_broker.broker(tmp_path / "store", names, SETTINGS, port=port) as broker:
            first = produce(broker.broker, "Load", 100, name="first")
            origins: dict[str, StoreOrigin] = {
                "beside": LocalOrigin(disk, of_store(tmp_path / "store"), "beside"),
                "afar": RemoteOrigin(disk, RemoteBroker(broker.broker), None, str(tmp_path)),
            }
            threads = []
            for name, origin in origins.items():
                copier = StoreCopier(disk, origin, repository, CreateOptions(name))
                follower = BackupFollower(origin, copier, repository, name, 0.2, states[name].append)
                follower.begin()
                threads.append(threading.Thread(target=follower.run, args=(stop,)))
                threads[-1].start()
            second = produce(broker.broker, "Load", 20_000, name="load")
            sent = whole_log(tmp_path / "store").rstrip(b"\0")
            until(lambda: all(one and one[-1].end >= len(sent) for one in states.values()))
        until(lambda: states["afar"][-1].failures > 0)
        with real_broker.broker(tmp_path / "store", names, SETTINGS, port=port) as broker:
            third = produce(broker.broker, "Load", 500, name="third")
            log = whole_log(tmp_path / "store")
            until(lambda: all(one and one[-1].end >= len(log.rstrip(b"\0")) for one in states.values()))
            stop.set()
            for thread in threads:
                thread.join()
        for name, told in states.items():
            origins[name].close()
            served = itertools.takewhile(lambda one: not one.failures, told)  # from afar the restart is a failure
            assert (
                max(later.covered_s - before.covered_s for before, later in itertools.pairwise(served))
                <= STANDS_STILL_S
            ), name
            assert told[-1].snapshots > 3
            newest, _ = repository.find("latest", name)
            restored = repositories.bring_back(repository, tmp_path / name, newest.snapshot_id)
            assert restored.refusal is None
            assert whole_log(tmp_path / name)[: told[-1].end] == log[: told[-1].end]
            assert_sound(of_store(tmp_path / name))
        with real_broker.broker(tmp_path / "afar", names, SETTINGS) as broker:
            assert consume(broker.broker, "Load") == first.bodies | second.bodies | third.bodies
    assert not check_repository(repository, 1.0).bad


def whole_log(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
