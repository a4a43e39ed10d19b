"""The archive against what is not ours: in a real S3 server, of a store that Apache's broker wrote and goes on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.backup.check import check_repository
from engine.backup.prune import forget, plan_forget, prune
from engine.backup.retention import Keep
from engine.config import of_store
from engine.read_store import ReadStore
from tests.compat import real_broker, toolchain
from tests.compat.replicas import produce
from tests.compat.test_backup import SETTINGS, s3
from tests.engine.backup import archives, repositories
from tests.engine.opening import assert_sound

__all__ = ["s3"]

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


def test_apache_goes_on_with_an_expired_store_and_all_is_read(s3: int, tmp_path: Path) -> None:
    try:
        toolchain.apache_broker()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    store = tmp_path / "store"
    repository = repositories.new("s3://backups/archive")
    with real_broker.name_server(tmp_path / "names") as names:
        with real_broker.broker(store, names, SETTINGS) as broker:
            sent = produce(broker.broker, "Load", 10_000, 1000, name="first")
        with ReadStore(of_store(store)) as reader:
            before = archives.messages(reader)
        assert sum(len(some) for queue, some in before.items() if queue.startswith("Load/")) == len(sent.bodies)
        repositories.back_up(repository, of_store(store))
        plan = archives.expire(repository, of_store(store)).plan
        assert len(plan.segments) >= 2
        forget(repository, plan_forget(repository, [one.snapshot_id for one in repository.snapshots()], Keep(), None))
        prune(repository, lambda _: True)
        result = check_repository(repository, 1.0)
        assert (result.bad, result.archived, result.unused) == ([], len(plan.segments), 0)
        with archives.opened(repository, of_store(store)) as reader:
            assert archives.messages(reader) == before
        assert_sound(of_store(store))
        with real_broker.broker(store, names, SETTINGS) as broker:
            assert produce(broker.broker, "Load", 10, name="after").codes == {0}
    with archives.opened(repository, of_store(store)) as reader:
        after = archives.messages(reader)
        assert {queue: some[: len(before[queue])] for queue, some in after.items() if queue in before} == before
        more = sum(len(some) for queue, some in after.items() if queue.startswith("Load/")) - len(sent.bodies)
        assert more == 10
