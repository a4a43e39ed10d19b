"""unread: what groups have not read, from config/ as Apache writes it, against what Apache reads from the queues."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.inspect.status.status import StoreStatus, status
from engine.inspect.status.unread import GroupUnread
from engine.inspect.store.consumers import DELIVERY
from tests.engine.inspect.aged import age, units
from tests.engine.opening import assert_sound
from tests.support.config import write_config

pytestmark = pytest.mark.leaves()

Store = Callable[[str], Path]
NAME = "clean-small"


def fastjson(value: Any) -> str:
    """Integer keys without quotes, as fastjson writes them."""
    if isinstance(value, dict):
        keys = (str(k) if isinstance(k, int) else json.dumps(k) for k in value)
        return "{" + ",".join(f"{k}:{fastjson(v)}" for k, v in zip(keys, value.values(), strict=True)) + "}"
    return json.dumps(value)


@pytest.fixture
def store(fixture_copy: Store) -> Path:
    copy = fixture_copy(NAME)
    age(copy, NAME)
    write_config(copy)
    return copy


def write(store: Path, name: str, value: Any) -> None:
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / name).write_text(value if isinstance(value, str) else fastjson(value), encoding="utf-8")


def offsets(store: Path, table: dict[str, Any]) -> None:
    write(store, "consumerOffset.json", {"offsetTable": table})


def look(store: Path, **changes: Any) -> StoreStatus:
    return status(Disk(), StoreConfig(store_path_root_dir=store).with_changes(**changes))


def group(found: StoreStatus, name: str, topic: str) -> GroupUnread:
    return found.unread.groups[name, topic]


def own(topic: str, queue_id: int | None = None) -> list[dict[str, Any]]:
    return [u for u in units(NAME) if u["topic"] == topic and queue_id in (None, u["queueId"])]


def codes(found: StoreStatus) -> list[str]:
    return [f.code for f in found.findings]


def test_messages_bytes_and_the_oldest(store: Path) -> None:
    topic = "Hot"
    ends = {u["queueId"]: u["offset"] + 1 for u in own(topic)}
    behind = {q: end - 1 - 3 * i % end for i, (q, end) in enumerate(sorted(ends.items()))}
    offsets(store, {f"{topic}@slow": behind, f"{topic}@done": ends, f"{topic}@new": dict.fromkeys(ends, 0)})
    found = look(store)
    left = [u for u in own(topic) if u["offset"] >= behind[u["queueId"]]]
    slow = group(found, "slow", topic)
    assert (slow.messages, slow.size, slow.estimated) == (len(left), sum(u["size"] for u in left), False)
    assert slow.oldest == min(u["physicalOffset"] for u in left)
    assert slow.oldest_timestamp == min(u["time"] for u in left)
    done = group(found, "done", topic)
    assert (done.messages, done.size, done.oldest, done.oldest_timestamp) == (0, 0, -1, 0)
    assert group(found, "new", topic).messages == len(own(topic))
    assert [g.group for g in found.unread.by_messages()[:2]] == ["new", "slow"]
    assert codes(found) == []
    assert found.unread.source == "consumerOffset.json"
    assert found.unread.written == (store / "config" / "consumerOffset.json").stat().st_mtime_ns // 1_000_000


def test_offsets_out_of_range_are_findings(store: Path) -> None:
    end = len(own("Hot", 0))
    offsets(store, {"Hot@ahead": {0: end + 5}, "Hot@behind": {0: 2}, "Gone@g": {0: 7, 1: 0}})
    first = min((store / "commitlog").iterdir())
    size = first.stat().st_size
    first.unlink()
    low = sum(u["physicalOffset"] < size for u in own("Hot", 0))
    assert 2 < low < end
    found = look(store)
    assert codes(found) == ["consumer-below", "consumer-above", "consumer-queue"]
    behind, ahead, gone = found.findings
    assert f"Hot/0 for behind: 2, the minimum is {low}" in behind.message
    assert behind.where == "config/consumerOffset.json Hot@behind queue 0"
    assert f"Hot/0 for ahead: {end + 5}, the maximum is {end}" in ahead.message
    assert "Gone/0 for g: 7" in gone.message
    assert group(found, "ahead", "Hot").messages == 0
    assert group(found, "behind", "Hot").messages == end - low
    assert group(found, "behind", "Hot").size == sum(u["size"] for u in own("Hot", 0) if u["offset"] >= low)
    assert group(found, "g", "Gone").messages == 0


def test_what_lies_on_a_disk_that_is_not_mounted_is_not_said_to_be_gone(store: Path) -> None:
    offsets(store, {"Hot@behind": {0: 2}})
    first = min((store / "commitlog").iterdir())
    away = store.parent / "away"
    shutil.move(first, away)
    first.symlink_to(store.parent / "not-mounted" / first.name)
    assert codes(look(store)) == ["file-absent"]
    first.unlink()
    assert codes(look(store)) == ["consumer-below"]
    paths = f"{store / 'commitlog'},{store.parent / 'not-mounted'}"
    assert codes(look(store, store_path_commit_log=paths)) == ["path-missing"]
    shutil.move(away, first)
    assert codes(look(store)) == []
    assert_sound(StoreConfig(store_path_root_dir=store))


def test_queues_without_an_offset_are_told_not_counted(store: Path) -> None:
    offsets(store, {"Hot@g": {0: 0}})
    found = group(look(store), "g", "Hot")
    rest = len(own("Hot")) - len(own("Hot", 0))
    assert (found.messages, found.unknown) == (len(own("Hot", 0)), rest)
    assert {q.queue_id for q in found.queues if q.offset is None} == {u["queueId"] for u in own("Hot")} - {0}


def test_retries_belong_to_their_group(store: Path) -> None:
    topic = "%RETRY%billing"
    offsets(store, {"Hot@billing": {0: 0}})
    found = group(look(store), "billing", topic)
    assert (found.messages, found.unknown) == (0, len(own(topic)))
    offsets(store, {f"{topic}@billing": {0: 3}})
    found = group(look(store), "billing", topic)
    assert (found.messages, found.unknown) == (len(own(topic, 0)) - 3, len(own(topic)) - len(own(topic, 0)))


def test_groups_without_offsets_may_be_broadcasting(store: Path) -> None:
    offsets(store, {"Hot@known": {0: 1}})
    groups = ["known", "everyone", "TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS"]
    write(store, "subscriptionGroup.json", {"subscriptionGroupTable": {g: {"groupName": g} for g in groups}})
    assert look(store).unread.without == ["everyone"]


def test_delayed_messages_wait_for_the_broker(store: Path) -> None:
    topic = "SCHEDULE_TOPIC_XXXX"
    queue = max({u["queueId"] for u in own(topic)}, key=lambda q: len(own(topic, q)))
    many = len(own(topic, queue))
    rest = len(own(topic)) - many  # levels without an offset: a broker begins at their start
    write(store, "delayOffset.json", {"offsetTable": {queue + 1: 1}})
    found = look(store)
    assert group(found, DELIVERY, topic).messages == rest + many - 1
    assert codes(found) == []
    write(store, "delayOffset.json", {"offsetTable": {queue + 1: many + 4}})
    found = look(store)
    assert (codes(found), group(found, DELIVERY, topic).messages) == (["delay-range"], rest)
    write(store, "delayOffset.json", {"offsetTable": {0: 3}})
    assert codes(look(store)) == ["delay-range"]


def test_light_queues_have_a_file_of_their_own(fixture_copy: Store) -> None:
    store = fixture_copy("lmq")
    lines = [u for u in units("lmq") if u["topic"].startswith("%LMQ%")]
    topic = lines[0]["topic"]
    write(store, "consumerOffset.json", {"offsetTable": {"Nothing@g": {0: 0}}})
    write(store, "lmqConsumerOffset.json", {"offsetTable": {}, "lmqOffsetTable": {f"{topic}@%LMQ%me": 1}})
    found = look(store, enable_lmq=True)
    assert group(found, "%LMQ%me", topic).messages == sum(u["topic"] == topic for u in lines) - 1
    assert found.unread.source == "lmqConsumerOffset.json"
    assert look(store).unread.source == "consumerOffset.json"


def test_a_good_backup_is_used_and_named(store: Path) -> None:
    write(store, "consumerOffset.json.bak", {"offsetTable": {"Hot@g": {0: 0}}})
    write(store, "consumerOffset.json", '{"offsetTable":{"Hot@g":{0:')
    found = look(store)
    assert codes(found) == ["config-bak"]
    assert found.unread.source == "consumerOffset.json.bak"
    assert group(found, "g", "Hot").messages == len(own("Hot", 0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "config-bad"),
        ("\0" * 100, "config-bad"),
        ("[1]", "config-bad"),
        ('{"offsetTable":[]}', "config-bad"),
        ('{"offsetTable":{"Hot@g":7}}', "config-value"),
        ('{"offsetTable":{"Hot@g":{0:-7}}}', "config-value"),
        ('{"offsetTable":{"Hot@g":{x:7}}}', "config-value"),
        ('{"offsetTable":{"Hot@g":{"x":7}}}', "config-value"),
        ('{"offsetTable":{"Hot":{0:7}}}', "config-value"),
        ('{"offsetTable":{"a@b@c":{0:7}}}', "config-value"),
        ('{"offsetTable":{"@":{0:7}}}', "config-value"),
    ],
)
def test_what_can_not_be_read_is_told(text: str, expected: str, store: Path) -> None:
    write(store, "consumerOffset.json", text)
    found = look(store)
    assert codes(found) == [expected]
    assert sum(g.messages for g in found.unread.groups.values()) == 0


def test_no_file_at_all(store: Path) -> None:
    shutil.rmtree(store / "config")
    found = look(store).unread
    assert (found.source, found.written, found.without) == (None, 0, [])
