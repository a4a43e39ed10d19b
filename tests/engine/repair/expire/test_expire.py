"""Expire: the files that Apache's round would delete, and no others; what is unread in them is told."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from engine.broker_conf.delete_when import read_delete_when
from engine.config import StoreConfig
from engine.errors import CannotRepair
from engine.files.disk import Disk
from engine.files.file_system import Usage
from engine.files.queue import MappedFileQueue
from engine.format import names
from engine.format.message import Message
from engine.format.topic_rules import HALF_TOPIC, OP_TOPIC
from engine.inspect.store.consumers import DELIVERY
from engine.log.consume_queue import ConsumeQueue
from engine.log.consume_queue_ext import ConsumeQueueExt
from engine.log.derive import TopicQueue
from engine.log.index_service import IndexService
from engine.repair.expire.expire import ExpirePlan, ExpireRules, apply_expire, plan_expire
from engine.repair.expire.half_messages import GROUP
from engine.repair.recover.recover import plan_recover
from engine.store import MessageStore
from tests.conftest import Store
from tests.engine.log import rebuild
from tests.engine.repair.test_rules import put, settings
from tests.support import stores

HOUR = 3600
NOW = int(time.time())


class Quiet(Disk):
    """A disk that is used to a given part, at a given hour."""

    def __init__(self, used: int = 30, hour: int = 4) -> None:
        super().__init__()
        self.percent = used
        self.hour = hour

    def usage(self, path: str) -> Usage:
        return Usage(100 << 30, self.percent << 30, (100 - self.percent) << 30)

    def now_ms(self) -> int:
        local = time.localtime(NOW)
        return int(time.mktime((*local[:3], self.hour, 30, 0, 0, 0, -1))) * 1000


def age(root: Path, hours: list[float], disk: Quiet | None = None) -> None:
    """Let the log's files be so many hours old, the oldest first."""
    now = (disk or Quiet()).now_ms() / 1000
    for path, old in zip(sorted((root / names.COMMITLOG).iterdir()), hours, strict=False):
        os.utime(path, (now - old * HOUR, now - old * HOUR))


def files(root: Path) -> list[str]:
    return [path.name for path in sorted((root / names.COMMITLOG).iterdir())]


def expire(root: Path, disk: Disk | None = None, config: StoreConfig | None = None, **rules: object) -> ExpirePlan:
    disk = disk or Quiet()
    plan = plan_expire(disk, config or settings(root), ExpireRules(**rules))
    apply_expire(disk, plan)
    return plan


# --- which files -----------------------------------------------------------------------------------------------------


def test_old_ones_up_to_the_first_that_may_stay(tmp_path: Path) -> None:
    put(tmp_path, 300)
    before = files(tmp_path)
    assert len(before) > 6
    age(tmp_path, [100, 73, 72, 71, 100, 100] + [0] * 20)
    plan = expire(tmp_path)
    assert files(tmp_path) == before[3:]
    assert (plan.why, len(plan.segments), plan.log_min) == ("it is 4 o'clock (deleteWhen)", 3, int(before[3]))
    assert plan.pinned == f"nothing more to delete: retention not reached; {before[3]} is kept for 1.0 more hours"
    assert not plan_recover(Disk(), settings(tmp_path)).changed
    assert not plan_expire(Quiet(), settings(tmp_path), ExpireRules()).changed


def test_the_hour(tmp_path: Path) -> None:
    put(tmp_path, 100)
    disk = Quiet(hour=5)
    age(tmp_path, [100] * 20, disk)
    assert plan_expire(disk, settings(tmp_path), ExpireRules()).why is None
    assert not plan_expire(disk, settings(tmp_path), ExpireRules()).changed
    assert plan_expire(disk, settings(tmp_path), ExpireRules(forced=True)).segments
    several = settings(tmp_path).with_changes(delete_when="03;05")
    assert plan_expire(disk, several, ExpireRules()).segments
    nonsense = settings(tmp_path).with_changes(delete_when="noon")
    plan = plan_expire(disk, nonsense, ExpireRules())
    assert plan.why is None
    assert plan.no_reason == plan.problems[0] == read_delete_when("noon").problem("noon")
    assert plan_expire(disk, nonsense, ExpireRules(forced=True)).segments


@pytest.mark.parametrize(
    ("used", "gone"), [(75, 0), (76, 2), (85, 2), (86, 99), (91, 99)], ids=["75", "76", "85", "86", "91"]
)
def test_the_ratios(tmp_path: Path, used: int, gone: int) -> None:
    put(tmp_path, 300)
    count = len(files(tmp_path))
    disk = Quiet(used=used, hour=12)
    age(tmp_path, [80, 80] + [1] * 30, disk)
    plan = plan_expire(disk, settings(tmp_path), ExpireRules())
    assert len(plan.segments) == min(gone, 10, count - 1)
    kind = settings(tmp_path).with_changes(clean_file_forcibly_enable=False)
    assert len(plan_expire(disk, kind, ExpireRules()).segments) == min(gone, 2)
    assert plan_expire(disk, settings(tmp_path), ExpireRules(disk_ratio=50)).segments
    assert not plan_expire(
        Quiet(used=86, hour=12), kind.with_changes(delete_when="1"), ExpireRules(disk_ratio=95)
    ).segments


@pytest.mark.leaves("unit-missing")
def test_a_directory_that_is_missing_is_no_reason(tmp_path: Path) -> None:
    put(tmp_path, 100)
    age(tmp_path, [100] * 20)
    shutil.rmtree(tmp_path / names.CONSUMEQUEUE)
    assert plan_expire(Quiet(hour=12), settings(tmp_path), ExpireRules()).why is None


def test_ten_a_round_and_never_the_last(tmp_path: Path) -> None:
    put(tmp_path, 800)
    before = files(tmp_path)
    assert len(before) > 12
    age(tmp_path, [100] * 99)
    plan = expire(tmp_path)
    assert files(tmp_path) == before[10:]
    assert "at most 10" in plan.pinned
    while files(tmp_path) != before[-1:]:
        assert expire(tmp_path).segments
    plan = expire(tmp_path)
    assert not plan.changed
    assert "last file" in plan.pinned
    assert not plan_recover(Disk(), settings(tmp_path)).changed


def test_reserved_hours(tmp_path: Path) -> None:
    put(tmp_path, 100)
    age(tmp_path, [5] * 20)
    assert not plan_expire(Quiet(), settings(tmp_path), ExpireRules()).segments
    assert plan_expire(Quiet(), settings(tmp_path), ExpireRules(reserved_hours=5)).segments
    assert not plan_expire(Quiet(), settings(tmp_path), ExpireRules(reserved_hours=5.1)).segments


@pytest.mark.leaves("not-closed")
def test_a_store_that_was_not_closed(tmp_path: Path) -> None:
    put(tmp_path, 100)
    age(tmp_path, [100] * 20)
    (tmp_path / names.ABORT).touch()
    plan = plan_expire(Quiet(), settings(tmp_path), ExpireRules())
    before = stores.contents(tmp_path)
    with pytest.raises(CannotRepair, match="not closed"):
        apply_expire(Quiet(), plan)
    assert stores.contents(tmp_path) == before


# --- queues and index follow as those of an open store do -------------------------------------------------------------


@pytest.mark.parametrize("name", ["clean-small", "transient-ext", "lmq"])
@pytest.mark.parametrize("old", [1, 2, 99])
def test_as_the_parts_of_an_open_store_do_it(fixture_copy: Store, tmp_path: Path, name: str, old: int) -> None:
    root = fixture_copy(name)
    config = rebuild.config_of(name, ours=True).with_changes(store_path_root_dir=root)
    age(root, [100] * old + [0] * 50)
    theirs = stores.copy(root, tmp_path / "theirs")
    plan = expire(root, config=config)
    disk = Quiet()
    log = MappedFileQueue(disk, str(theirs / names.COMMITLOG), config.mapped_file_size_commit_log)
    log.load()
    for _ in plan.segments:
        assert log.delete_first(0)
    log_min = log.min_offset
    log.shutdown()
    assert plan.log_min == log_min
    for directory in sorted((theirs / names.CONSUMEQUEUE).glob("*/*")):
        queue = TopicQueue(directory.parent.name, int(directory.name))
        ext = None
        if config.enable_consume_queue_ext:
            base = str(theirs / names.CONSUMEQUEUE_EXT)
            ext = ConsumeQueueExt(disk, base, queue, config.mapped_file_size_consume_queue_ext)
        open_queue = ConsumeQueue(
            disk, str(theirs / names.CONSUMEQUEUE), queue, config.mapped_file_size_consume_queue, ext
        )
        open_queue.open(None)
        open_queue.delete_expired(log_min)
        ours = next(one for one in plan.queues if one.queue == queue)
        assert ours.max_offset == open_queue.max_offset
        if open_queue.min_offset < ours.min_offset:  # no unit of it is left in the log: theirs stays where it was
            assert ours.min_offset == ours.max_offset
        else:
            assert ours.min_offset == open_queue.min_offset
        open_queue.shutdown()
    service = IndexService(disk, str(theirs / names.INDEX), rebuild.layout_of(config))
    service.open([path.name for path in (theirs / names.INDEX).iterdir()])
    service.delete_expired(log_min)
    service.shutdown()
    ours_left = {path.relative_to(root) for path in root.rglob("*") if path.is_file()}
    assert ours_left == {path.relative_to(theirs) for path in theirs.rglob("*") if path.is_file()}
    assert all(stores.digest(root / path) == stores.digest(theirs / path) for path in ours_left)
    assert not plan_recover(Disk(), config).changed


@pytest.mark.parametrize("name", ["clean-small", "transient-ext", "lmq"])
@pytest.mark.parametrize(
    ("used", "hour", "old", "changes"),
    [
        (30, 4, [100] * 3 + [10], {}),
        (30, 5, [100] * 3, {}),
        (76, 5, [100] * 2, {}),
        (86, 5, [100] * 2, {}),
        (86, 5, [100] * 2, {"clean_file_forcibly_enable": False}),
        (30, 7, [2, 2, 1, 0], {"delete_when": "03;07", "file_reserved_time": 2}),
    ],
)
def test_as_a_round_of_an_open_store(
    fixture_copy: Store, tmp_path: Path, name: str, used: int, hour: int, old: list[float], changes: dict[str, object]
) -> None:
    root = fixture_copy(name)
    config = rebuild.config_of(name, ours=True).with_changes(store_path_root_dir=root, **changes)
    disk = Quiet(used, hour)
    age(root, old + [0.0] * 50, disk)
    theirs = stores.copy(root, tmp_path / "theirs")
    plan = expire(root, disk, config)
    with MessageStore.open(
        config.with_changes(store_path_root_dir=theirs, delete_commit_log_files_interval=0), disk
    ) as store:
        assert store.clean.clean() == len(plan.segments)
        assert store.log.min_offset == plan.log_min
        for queue in plan.queues:
            open_min = store.min_offset(*queue.queue)
            assert open_min == queue.min_offset or queue.min_offset == queue.max_offset
    where = (names.COMMITLOG, names.CONSUMEQUEUE, names.CONSUMEQUEUE_EXT, names.INDEX)
    left = [
        sorted(path.relative_to(place) for part in where for path in (place / part).rglob("*") if path.is_file())
        for place in (root, theirs)
    ]
    assert left[0] == left[1]


# --- what goes unread ------------------------------------------------------------------------------------------------


@pytest.mark.leaves("config-missing")
def test_what_groups_have_not_read(tmp_path: Path) -> None:
    put(tmp_path, 300)
    age(tmp_path, [100, 100, 100] + [0] * 30)
    (tmp_path / names.CONFIG).mkdir()
    (tmp_path / names.CONFIG / "consumerOffset.json").write_text('{"offsetTable":{"T@slow":{0:10},"T@quick":{0:150}}}')
    plan = plan_expire(Quiet(), settings(tmp_path), ExpireRules())
    queue = next(q for q in plan.queues if q.queue == TopicQueue("T", 0))
    assert queue.old_min == 0
    assert 10 < queue.min_offset < 150
    (one,) = plan.unread
    assert (one.group, one.start, one.end) == ("slow", 10, queue.min_offset)
    assert plan.records == 2 * queue.min_offset or plan.records == 2 * queue.min_offset - 1
    found = plan.to_json()
    assert found["salvage"] is None
    assert found["unread"][0]["messages"] == queue.min_offset - 10
    assert sum(q["unitsCut"] for q in found["queues"]) == plan.records


def test_delayed_messages(tmp_path: Path) -> None:
    with MessageStore.open(settings(tmp_path)) as store:
        for _ in range(200):
            message = Message("D", b"x" * 200, queue_id=0, properties={"DELAY": "3"})
            assert store.put(message).ok
    age(tmp_path, [100, 100] + [0] * 30)
    assert plan_expire(Quiet(), settings(tmp_path), ExpireRules()).unread == ()  # no config at all: a bare store
    (tmp_path / names.CONFIG).mkdir()
    (tmp_path / names.CONFIG / "delayOffset.json").write_text('{"offsetTable":{3:4}}')
    plan = plan_expire(Quiet(), settings(tmp_path), ExpireRules())
    (one,) = plan.unread
    assert (one.group, one.queue, one.start) == (DELIVERY, TopicQueue(names.SCHEDULE_TOPIC, 2), 4)


@pytest.mark.leaves("config-missing")
def test_halves(tmp_path: Path) -> None:
    with MessageStore.open(settings(tmp_path)) as store:
        for i in range(10):
            assert store.put(Message(HALF_TOPIC, b"half", queue_id=0, properties={"i": str(i)})).ok
        prepared = [store.put(Message("P", b"prepared", queue_id=0, sys_flag=4)).append for _ in range(4)]
        for i in (5, 7):
            assert store.put(Message(OP_TOPIC, str(i).encode(), queue_id=0, properties={"TAGS": "d"})).ok
        assert prepared[1] is not None
        assert prepared[3] is not None
    put(tmp_path, 300)
    with MessageStore.open(settings(tmp_path)) as store:
        for flag, half in ((8, prepared[1]), (12, prepared[3])):
            done = Message("P", b"done", queue_id=0, sys_flag=flag, prepared_transaction_offset=half.physical_offset)
            assert store.put(done).ok
    age(tmp_path, [100] + [0] * 30)
    (tmp_path / names.CONFIG).mkdir()
    table = f'{{"offsetTable":{{"{HALF_TOPIC}@{GROUP}":{{0:4}}}}}}'
    (tmp_path / names.CONFIG / "consumerOffset.json").write_text(table)
    plan = plan_expire(Quiet(), settings(tmp_path), ExpireRules())
    assert [half.physical_offset for half in plan.half_messages if half.queue.topic == "P"] == [
        prepared[0].physical_offset,
        prepared[2].physical_offset,
    ]
    assert len([half for half in plan.half_messages if half.queue.topic == HALF_TOPIC]) == 4  # 4, 6, 8, 9
    assert len(plan.to_json()["openHalfMessages"]) == 6
