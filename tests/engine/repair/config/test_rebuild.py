"""rebuild-config: whatever became of config/, a broker reads what is made, and reaches every message."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.config import StoreConfig
from engine.errors import CannotRepair, DataIsAbsent, InvalidArgument, StoreChanged
from engine.files.disk import Disk
from engine.format import fastjson, properties
from engine.format.message import DueMessage, Message
from engine.inspect.check.check import check
from engine.inspect.store.config_files import ConfigFileState, read_table
from engine.inspect.store.config_shapes import CONSUMERS, DELAYS, GROUPS, OFFSET_TABLE, TOPIC_TABLE, TOPICS
from engine.repair.config.apply import apply
from engine.repair.config.plan import RebuildChoices, RebuildPart, RebuildPlan, plan_rebuild
from engine.repair.config.restore import plan_restore
from engine.repair.salvage.undo import plan_undo, undo
from engine.store import MessageStore
from tests.conftest import Store
from tests.engine.repair.test_rules import put, settings
from tests.support import stores
from tests.support.checking import check_clean
from tests.support.config import write_config

FILES = (TOPICS, GROUPS, CONSUMERS, DELAYS)


def config(store: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=store)


def plan(store: Path, choices: RebuildChoices | None = None, disk: Disk | None = None) -> RebuildPlan:
    return plan_rebuild(disk or Disk(), config(store), choices)


def rebuild(store: Path, choices: RebuildChoices | None = None) -> RebuildPlan:
    found = plan(store, choices)
    if found.changed:
        apply(Disk(), found)
    return found


def read(store: Path, name: str) -> Any:
    return fastjson.loads((store / "config" / name).read_text())


def write(store: Path, name: str, value: object) -> None:
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / name).write_text(value if isinstance(value, str) else fastjson.dumps(value), encoding="utf-8")


def kept(store: Path) -> dict[str, stores.Seen]:
    """All of the store that undo brings back."""
    found = stores.snapshot(store)
    return {
        path: seen
        for path, seen in found.items()
        if not path.startswith(("salvage", "lock", "quarantine")) and seen.digest != "directory"
    }


def lived(store: Path) -> dict[str, dict[str, int]]:
    """Give a store the config/ of a broker with consumers; their offsets."""
    write_config(store)
    offsets = {
        f"{topic.name}@group-{topic.name[:4].strip('%')}": {
            queue.name: 1 for queue in sorted(topic.iterdir()) if any(queue.iterdir())
        }
        for topic in sorted((store / "consumequeue").iterdir())
        if topic.name in ("Hot", "Orders", "T")
    }
    write(store, CONSUMERS, {"offsetTable": offsets})
    topics = read(store, TOPICS)
    topics["topicConfigTable"]["Hot"]["attributes"] = {"+message.type": "NORMAL"}
    topics["later"] = [1, {"a": 2}]
    write(store, TOPICS, topics)
    groups = {key.partition("@")[2]: {"groupName": key.partition("@")[2], "retryMaxTimes": 3} for key in offsets}
    write(store, GROUPS, {"dataVersion": {"counter": 7, "timestamp": 8}, "subscriptionGroupTable": groups})
    return offsets


@pytest.mark.leaves("config-missing")
@pytest.mark.parametrize("name", FILES)
def test_a_lost_file(name: str, fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    lived(store)
    before = kept(store)
    (store / "config" / name).unlink()
    lost = kept(store)
    found = plan(store)
    assert [one.name for one in found.changes] == [name]
    assert kept(store) == lost
    apply(Disk(), found)
    assert read_table(Disk(), str(store / "config"), name).state is ConfigFileState.SOUND
    assert not plan(store).changed
    assert set(kept(store)) == set(before)
    check_clean(store)
    undo(Disk(), plan_undo(Disk(), config(store)))
    assert kept(store) == lost


@pytest.mark.leaves("unit-missing")
def test_a_lost_file_that_held_nothing(fixture_copy: Store) -> None:
    """Its .bak holds nothing either, and a broker takes that: made again, nobody is sent here a second time."""
    store = fixture_copy("clean-small")
    lived(store)
    write(store, f"{DELAYS}.bak", {"offsetTable": {}})
    shutil.rmtree(store / "consumequeue" / "SCHEDULE_TOPIC_XXXX", ignore_errors=True)
    (store / "config" / DELAYS).unlink(missing_ok=True)
    assert any(one.code == "config-bak" for one in check(Disk(), config(store)).findings)
    rebuild(store)
    assert read(store, DELAYS) == {"offsetTable": {}}
    assert not any(one.code.startswith("config-") for one in check(Disk(), config(store)).findings)
    assert not plan(store).changed


def test_all_of_it_lost(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    before = kept(store)
    rebuild(store)
    topics = read(store, TOPICS)["topicConfigTable"]
    for queue in (store / "consumequeue").glob("*/*"):
        said = topics[queue.parent.name]
        assert int(queue.name) < said["readQueueNums"] == said["writeQueueNums"]
        assert said["perm"] == 6
    assert topics["SCHEDULE_TOPIC_XXXX"]["readQueueNums"] == 18
    assert "billing" in read(store, GROUPS)["subscriptionGroupTable"]
    assert check_clean(store).findings == ()
    assert not plan(store).changed
    undo(Disk(), plan_undo(Disk(), config(store)))
    assert kept(store) == before
    assert not (store / "config").exists()


def test_what_is_not_known_here_stays(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    lived(store)
    old = read(store, TOPICS)
    text = fastjson.dumps({**old, "topicConfigTable": {**old["topicConfigTable"], "T": 5}})
    write(store, TOPICS, text)
    rebuild(store)
    new = read(store, TOPICS)
    assert new["later"] == [1, {"a": 2}]
    assert new["topicConfigTable"]["Hot"]["attributes"] == {"+message.type": "NORMAL"}
    assert new["topicConfigTable"]["T"]["readQueueNums"] == old["topicConfigTable"]["T"]["readQueueNums"]
    assert new["dataVersion"]["counter"] == old["dataVersion"]["counter"] + 1  # else name servers keep the old routes
    assert new["dataVersion"]["timestamp"] > old["dataVersion"]["timestamp"]


def test_a_file_that_was_cut_keeps_what_can_be_read(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    offsets = lived(store)
    text = (store / "config" / CONSUMERS).read_text()
    at = text.index("group-Orde")
    write(store, CONSUMERS, text[: text.index(":1", at) + 1])
    found = rebuild(store)
    new = read(store, CONSUMERS)["offsetTable"]
    assert new["Hot@group-Hot"] == offsets["Hot@group-Hot"]
    assert set(new["Orders@group-Orde"].values()) == {0}  # the group is known, its offsets are not: the floor
    assert found.floored > 0


@pytest.mark.leaves("config-bak")
def test_a_state_that_was_just_written_is_the_freshest(fixture_copy: Store) -> None:
    """Apache's broker deletes the file, then renames the .tmp: killed in between, the .tmp has all of it."""
    store = fixture_copy("clean-small")
    offsets = lived(store)
    place = store / "config" / CONSUMERS
    write(store, f"{CONSUMERS}.bak", {"offsetTable": {"Hot@group-Hot": {"0": 0}}})
    place.rename(place.with_name(f"{CONSUMERS}.tmp"))
    before = kept(store)
    rebuild(store)
    assert read(store, CONSUMERS)["offsetTable"].items() >= offsets.items()
    undo(Disk(), plan_undo(Disk(), config(store)))
    assert kept(store) == before


@pytest.mark.leaves("config-missing")
@pytest.mark.parametrize("floor", ["min", "max", "time"])
def test_offsets_at_a_floor(floor: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, 40)
    write(root, CONSUMERS, '{"offsetTable":{"T@g":{0:"x",1:3}}}')
    times = [m.store_timestamp for m in _messages(root)]
    value: str | int = times[20] if floor == "time" else floor
    rebuild(root, RebuildChoices(only=frozenset({RebuildPart.OFFSETS}), floor=value))
    first = sum(1 for time in times[::2] if time < times[20])
    expected = {"min": 0, "max": 20, "time": first}[floor]
    assert read(root, CONSUMERS)["offsetTable"] == {"T@g": {"0": expected, "1": 3}}


def _messages(root: Path) -> list[Any]:
    from engine.inspect.dump.dump import MESSAGE, dump_log

    return [row.message for row in dump_log(Disk(), settings(root)) if row.kind == MESSAGE]


def test_an_offset_above_its_queue_becomes_its_end(tmp_path: Path) -> None:
    root = tmp_path / "store"
    put(root, 40)
    write_config(root)
    write(root, CONSUMERS, '{"offsetTable":{"T@g":{0:99,1:3}}}')
    assert not plan(root).changed
    rebuild(root, RebuildChoices(only=frozenset({RebuildPart.OFFSETS})))
    assert read(root, CONSUMERS)["offsetTable"] == {"T@g": {"0": 20, "1": 3}}
    assert (root / "config" / f"{CONSUMERS}.bak").read_text() == '{"offsetTable":{"T@g":{0:99,1:3}}}'


def test_a_replica_is_a_source(fixture_copy: Store, tmp_path: Path) -> None:
    store = fixture_copy("clean-small")
    offsets = lived(store)
    shutil.copytree(store / "config", tmp_path / "other" / "config")
    shutil.rmtree(store / "config")
    found = rebuild(store, RebuildChoices(directories=(str(tmp_path / "other"),)))
    assert read(store, CONSUMERS)["offsetTable"].items() >= offsets.items()
    assert read(store, GROUPS)["subscriptionGroupTable"]["group-Hot"]["retryMaxTimes"] == 3
    assert any("other" in label for one in found.changes for label in one.sources)
    with pytest.raises(InvalidArgument):
        plan(store, RebuildChoices(directories=(str(tmp_path / "nowhere"),)))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidArgument):
        plan(store, RebuildChoices(directories=(str(tmp_path / "empty"),)))


def test_a_topic_that_hides_messages(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    lived(store)
    topics = read(store, TOPICS)
    topics["topicConfigTable"]["T"] |= {"perm": 2, "readQueueNums": 1}
    write(store, TOPICS, topics)
    hint = next(f for f in check(Disk(), config(store)).findings if f.code == "topic-hidden")
    assert "rstore rebuild-config --topic" in hint.hint
    assert not plan(store).changed
    rebuild(store, RebuildChoices(topic="T"))
    said = read(store, TOPICS)["topicConfigTable"]["T"]
    assert (said["perm"], said["readQueueNums"]) == (6, 10)
    assert not plan(store, RebuildChoices(topic="T")).changed
    check_clean(store)
    with pytest.raises(InvalidArgument):
        plan(store, RebuildChoices(topic="Nothing"))


def test_a_group_that_may_not_consume(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    lived(store)
    groups = read(store, GROUPS)
    groups["subscriptionGroupTable"]["group-Hot"]["consumeEnable"] = False
    write(store, GROUPS, groups)
    assert "group-disabled" in {f.code for f in check(Disk(), config(store)).findings}
    rebuild(store, RebuildChoices(group="group-Hot"))
    assert read(store, GROUPS)["subscriptionGroupTable"]["group-Hot"]["consumeEnable"] is True
    assert not plan(store, RebuildChoices(group="group-Hot")).changed


def test_delayed_messages_that_were_delivered_are_not_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore.open(settings(root)) as store:
        for i in range(6):
            said = {"DELAY": "3", "UNIQ_KEY": f"u{i}"}
            assert store.put(Message("T", b"x%d" % i, queue_id=1, properties=said, born_timestamp=1000 + i)).ok
        for i in (0, 1, 2, 4):  # 3 is not delivered: 4 will be a second time, rather than 3 never
            said = {"UNIQ_KEY": f"u{i}", properties.REAL_TOPIC: "T", properties.REAL_QID: "1"}
            made = Message("T", b"x%d" % i, queue_id=1, properties=said, born_timestamp=1000 + i)
            assert store.put(DueMessage(*made)).ok
    write(root, TOPICS, "{}")
    rebuild(root)
    assert read(root, DELAYS)[OFFSET_TABLE] == {"3": 3}
    write(root, DELAYS, "{")
    write(root, f"{DELAYS}.bak", '{"offsetTable":{3:4}}')  # what a state knows as passed is not gone back behind
    rebuild(root)
    assert read(root, DELAYS)[OFFSET_TABLE] == {"3": 4}


@pytest.mark.leaves("config-bad", "file-stray")
def test_a_directory_in_place_of_a_file(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    lived(store)
    (store / "config" / TOPICS).unlink()
    (store / "config" / TOPICS).mkdir()
    (store / "config" / TOPICS / "note").write_text("x")
    before = kept(store)
    rebuild(store)
    check_clean(store)
    assert (store / "quarantine" / "config" / TOPICS / "note").exists()
    undo(Disk(), plan_undo(Disk(), config(store)))
    assert kept(store) == before


@pytest.mark.parametrize("name", [TOPICS, f"{TOPICS}.bak"])
def test_a_file_on_a_disk_that_is_not_mounted_is_not_written_over(name: str, fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    lived(store)
    path = store / "config" / name
    path.unlink(missing_ok=True)
    path.symlink_to(store.parent / "not-mounted" / name)
    before = stores.snapshot(store)
    for run in (lambda: plan(store), lambda: plan_restore(Disk(), config(store), TOPICS, 0)):
        with pytest.raises(DataIsAbsent) as refused:
            run()
        assert refused.value.path == str(path)
    assert stores.snapshot(store) == before
    path.unlink()
    rebuild(store)


@pytest.mark.leaves("config-bad")
@pytest.mark.parametrize("was", ["", "{broken", "\0" * 500, '{"topicConfigTable":{}}'])
def test_a_link_stays_one_and_undo_brings_back_what_it_leads_to(was: str, fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    lived(store)
    elsewhere = store.parent / "elsewhere.json"
    elsewhere.write_text(was)
    path = store / "config" / TOPICS
    path.unlink()
    path.symlink_to(elsewhere)
    before = kept(store)
    apply(Disk(), plan(store, RebuildChoices(every=True)))
    assert path.is_symlink()
    assert "Hot" in read(store, TOPICS)[TOPIC_TABLE]
    check_clean(store)
    undo(Disk(), plan_undo(Disk(), config(store)))
    assert path.is_symlink()
    assert elsewhere.read_text() == was
    assert kept(store) == before


@pytest.mark.leaves("config-bad", "file-stray")
def test_config_is_no_directory(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    (store / "config").write_text("x")
    with pytest.raises(CannotRepair):
        plan(store)


def test_undo_is_refused_once_a_broker_has_written(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    lived(store)
    write(store, CONSUMERS, "{")
    rebuild(store)
    write(store, CONSUMERS, {"offsetTable": {"Hot@new": {"0": 9}}})
    with pytest.raises(StoreChanged):
        plan_undo(Disk(), config(store))
