"""What a release would not read of a store: found, counted and placed on stores of real brokers, and made ones.

That the releases do what is said here is asked of themselves in tests/compat/test_upgrade.py.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.broker_conf import release_keys
from engine.broker_conf.all_keys import all_keys
from engine.broker_conf.release_keys import keys_of_release
from engine.config import StoreConfig
from engine.errors import InvalidArgument, NotAFile, NotAStore
from engine.files.disk import Disk
from engine.format import checkpoint, message, names
from engine.format.message import Message
from engine.format.record import MESSAGE_MAGIC_V2
from engine.inspect.finding_codes import Severity
from engine.repair.start import rules
from engine.repair.start.upgrade import Upgrade, judge_settings, plan_upgrade
from engine.repair.start.upgrade_rules import RULES
from tests.conftest import Store
from tests.engine.repair.test_rules import put, settings
from tests.support import newer, stores

Unpacked = Callable[[str], Path]


@pytest.fixture(scope="session")
def newer_store(tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            made[name] = newer.unpack(name, tmp_path_factory.mktemp("newer"))
        return made[name]

    return get


def looked(store: Path, release: str, conf: Path | None = None, **other: str) -> Upgrade:
    config = StoreConfig().with_changes(store_path_root_dir=store, other=other)
    before = stores.snapshot(store)
    upgrade = plan_upgrade(Disk(), config, release, conf=None if conf is None else str(conf))
    assert stores.snapshot(store) == before
    assert upgrade.ok == (not any(one.severity is Severity.ERROR for one in upgrade.findings))
    return upgrade


def told(upgrade: Upgrade) -> dict[str, tuple[str, str]]:
    """By code: where, and what."""
    return {one.code: (one.where, one.message) for one in upgrade.findings}


def test_the_tables_are_of_the_same_releases() -> None:
    assert release_keys.RELEASES == rules.RELEASES
    assert {rule.since for rule in RULES.values()} <= {None, *rules.RELEASES}
    assert keys_of_release("4.9.8") == all_keys().keys()
    assert all(rule.hint and rule.what for rule in RULES.values())


@pytest.mark.leaves
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("default", {}),
        ("batch", {"batch-queues": "batchconsumequeue/", "topic-attributes": "config/topics.json"}),
        ("timer", {"timer-waits": "timerlog/"}),
        ("controller", {"controller": "epochFileCheckpoint"}),
        ("compaction", {"compacted-topics": "compaction/", "topic-attributes": "config/topics.json"}),
        ("tiered", {"tiered-files": "config/tieredStoreMetadata.json"}),
        ("property-crc", {"record-crc": "commitlog/00000000000000000000 at 0"}),
    ],
)
def test_a_store_of_5_5_and_4_9_8(name: str, found: dict[str, str], newer_store: Unpacked) -> None:
    assert {code: where for code, (where, _) in told(looked(newer_store(name), "4.9")).items()} == found


@pytest.mark.leaves
def test_how_many_and_which(newer_store: Unpacked) -> None:
    def of(name: str, code: str) -> str:
        return told(looked(newer_store(name), "4.9.8"))[code][1]

    assert "(5 messages, the first due at 20" in of("timer", "timer-waits")
    assert "(1 entry: B)" in of("batch", "topic-attributes")
    assert of("batch", "batch-queues").endswith("(B)")
    assert of("compaction", "compacted-topics").endswith("(C)")
    assert "(20 records of 20 from there on)" in of("property-crc", "record-crc")


@pytest.mark.leaves
@pytest.mark.parametrize("name", ["default", "batch", "timer", "controller", "compaction", "property-crc"])
@pytest.mark.parametrize("release", ["5.3.3", "5.5.0"])
def test_stores_of_5_5_and_releases_that_read_all_of_it(name: str, release: str, newer_store: Unpacked) -> None:
    assert looked(newer_store(name), release).findings == ()


@pytest.mark.leaves
@pytest.mark.parametrize(("name", "since"), [("rocksdb", "5.3.1"), ("rocksdb-v2", "5.3.3")])
def test_databases_and_releases_that_read_none(name: str, since: str, newer_store: Unpacked) -> None:
    pytest.importorskip("rocksdict")
    code = {"rocksdb": "rocksdb-config", "rocksdb-v2": "rocksdb-config-v2"}[name]
    before = rules.RELEASES[rules.RELEASES.index(since) - 1]
    here = told(looked(newer_store(name), before))
    assert code in here
    assert code not in told(looked(newer_store(name), since))
    if name == "rocksdb":
        assert here["rocksdb-queues"][1].endswith("(2 queues)")
        assert "start-not-computed" in here


@pytest.mark.leaves
@pytest.mark.parametrize(
    ("path", "code", "since"),
    [
        ("rocksdbstore/000001.log", "rocksdb-store", "5.4.0"),
        ("kvStore/000001.log", "pop-store", "5.3.3"),
        ("timerwheel.7", "timer-snapshot", "5.4.0"),
    ],
)
def test_what_came_with_a_release_of_5(path: str, code: str, since: str, tmp_path: Path) -> None:
    store = newer.unpack("batch", tmp_path)
    (store / path).parent.mkdir(exist_ok=True)
    (store / path).write_bytes(b"\1" * 64)
    for release in rules.RELEASES:
        before = rules.RELEASES.index(release) < rules.RELEASES.index(since)
        assert (code in told(looked(store, release))) == before, release


@pytest.mark.leaves
def test_tables_of_config_that_4_9_does_not_know(tmp_path: Path) -> None:
    store = newer.unpack("batch", tmp_path)
    config = store / names.CONFIG

    def write(name: str, key: str, value: object) -> None:
        (config / name).write_text(json.dumps({key: value}))

    groups = json.loads((config / "subscriptionGroup.json").read_bytes())["subscriptionGroupTable"]
    groups["SELF_TEST_C_GROUP"]["consumeMessageOrderly"] = True
    write("subscriptionGroup.json", "subscriptionGroupTable", groups)
    write("topicQueueMapping.json", "topicQueueMappingInfoMap", {"S": {"topic": "S", "totalQueues": 8}})
    write("consumerOrderInfo.json", "table", {"T@g": {"0": {"o": [1]}}, "T@idle": {}})
    mode = {"g": {"mode": "POP"}, "pulls": {"mode": "PULL"}}
    write("messageRequestMode.json", "messageRequestModeMap", {"T": mode})
    here = told(looked(store, "4.9.8"))
    assert here["group-attributes"][1].endswith("(1 entry: SELF_TEST_C_GROUP)")
    assert here["static-topics"] == ("config/topicQueueMapping.json", f"{RULES['static-topics'].what} (1 entry: S)")
    assert here["pop-order"][1].endswith("(1 entry: T@g)")
    assert here["request-mode"][1].endswith("(1 entry: g on T)")
    assert looked(store, "5.3.1").findings == ()
    for name in ("topicQueueMapping.json", "consumerOrderInfo.json", "messageRequestMode.json"):
        (config / name).write_bytes(b"{")  # a broker starts without it
    assert not {"static-topics", "pop-order", "request-mode"} & told(looked(store, "4.9.8")).keys()


@pytest.mark.leaves
def test_pops_that_wait(tmp_path: Path) -> None:
    from engine.store import MessageStore

    topic = f"{names.REVIVE_PREFIX}DefaultCluster"
    with MessageStore.open(settings(tmp_path / "store")) as store:
        for tag in ("ck", "ack", "ck", "ck"):
            assert store.put(Message(topic, b"{}", queue_id=3, properties={"TAGS": tag})).ok
    config = tmp_path / "store" / names.CONFIG
    config.mkdir(exist_ok=True)
    offsets = {f"{topic}@CID_RMQ_SYS_REVIVE_GROUP": {"3": 1}}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    assert told(looked(tmp_path / "store", "4.9.8"))["pop-waits"] == (
        "the revive topic",
        f"{RULES['pop-waits'].what} (2 checkpoints)",
    )
    assert "pop-waits" not in told(looked(tmp_path / "store", "5.3.1"))


@pytest.mark.leaves
def test_records_with_long_topics(tmp_path: Path) -> None:
    store = tmp_path / "store"
    put(store, 3)
    (segment,) = (store / names.COMMITLOG).iterdir()
    data = bytearray(segment.read_bytes())
    end = 0
    while size := struct.unpack_from(">i", data, end)[0]:
        end += size
    record = bytearray(message.encode(Message("Topic", b"hello")))
    at = record.index(b"\x05Topic")
    record[at:at] = b"\0"
    struct.pack_into(">iI", record, 0, len(record), MESSAGE_MAGIC_V2)
    message.patch(record, 0, queue_offset=0, physical_offset=end, store_timestamp=1_700_000_000_000)
    data[end : end + len(record)] = record
    segment.write_bytes(data)
    here = told(looked(store, "4.9.8"))
    assert here["record-v2"] == (
        f"commitlog/{segment.name} at {end}",
        f"{RULES['record-v2'].what} (1 record from there on; Topic)",
    )
    assert here["start-loses"][1].endswith(f"(1 message after {end})")
    assert "record-v2" not in told(looked(store, "5.3.3"))


def test_an_old_log_and_forced_property_crcs(fixture_store: Store) -> None:
    """#7480."""
    store = fixture_store("clean-small")
    forced = looked(store, "5.3.3", forceVerifyPropCRC="true")
    here = told(forced)
    assert forced.next is not None
    assert forced.next.command is not None
    assert forced.next.command.endswith("plan-start --as 5.3.3")
    assert "from there on" in here["record-crc-missing"][1]
    assert here["record-crc-missing"][0] == "commitlog/00000000000000000000 at 0"
    assert "start-loses" in here
    assert looked(store, "5.3.3").findings == ()
    assert "record-crc-missing" not in told(looked(store, "4.9.8", forceVerifyPropCRC="true"))


@pytest.mark.leaves("file-stray")
def test_a_start_that_fails(fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    (store / names.COMMITLOG / "notes").mkdir()
    assert told(looked(store, "4.9.8"))["start-fails"][1].startswith(RULES["start-fails"].what)
    assert "start-fails" not in told(looked(store, "5.3.1"))  # it passes over directories


@pytest.mark.leaves
def test_fields_of_the_checkpoint_that_stay_behind(tmp_path: Path) -> None:
    store = newer.unpack("batch", tmp_path)
    with (store / names.CHECKPOINT).open("r+b") as file:
        file.seek(checkpoint.FIELDS_SIZE)
        file.write(struct.pack(">qqq", 0, 640, 9904))
    assert told(looked(store, "4.9.8"))["checkpoint-fields"][1].endswith(
        "(confirmPhyOffset=640, logicsPhysicalOffset=9904)"
    )
    assert told(looked(store, "5.3.3"))["checkpoint-fields"][1].endswith("(logicsPhysicalOffset=9904)")
    assert "checkpoint-fields" not in told(looked(store, "5.5.0"))


SETTINGS = """\
brokerName=a
aclEnable=true
haSlaveFallbehindMax=1
transactionCheckInterval=60000
timerWheelEnable=false
messageStorePlugIn=org.apache.rocketmq.tieredstore.TieredMessageStore
timerRocksDBEnable=true
noSuchKey=1
"""


def test_a_brokers_file_line_by_line(tmp_path: Path, fixture_store: Store) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(SETTINGS)
    store = fixture_store("clean-small")
    up = [(one.code, one.where.rpartition(":")[2], one.message) for one in looked(store, "5.3.3", conf).findings]
    assert [one[:2] for one in up] == [
        ("acl-ignored", "2"), ("key-gone", "3"), ("key-gone", "7"), ("key-new", "5"),
        ("default-changed", up[-1][1]),
    ]  # fmt: skip
    assert "haSlaveFallbehindMax: read by 4.9.8; haMaxGapNotInSync is its name with this release" in up[1][2]
    assert "timerRocksDBEnable: read since 5.4.0" in up[2][2]
    assert "timerWheelEnable: read since 5.3.1" in up[3][2]
    assert "registerBrokerTimeoutMills 6000 → 24000" in up[-1][2]
    assert "transactionCheckInterval" not in up[-1][2]  # the file sets it
    assert "acl-ignored" not in told(looked(store, "5.3.1", conf))
    back = told(looked(store, "4.9.8", conf))
    assert back.keys() == {"plug-in", "key-gone"}


def test_a_file_alone(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(SETTINGS)
    alone = judge_settings(Disk(), str(conf), "5.5")
    assert (alone.to, alone.root, alone.ok) == ("5.5.0", None, False)
    assert told(alone).keys() == {"acl-ignored", "key-gone"}
    conf.write_text("brokerName=a\naclEnable=false\n")
    assert judge_settings(Disk(), str(conf), "5.5.0").findings == ()
    conf.write_text("a=\\u12\n")
    with pytest.raises(InvalidArgument):
        judge_settings(Disk(), str(conf), "5.5.0")
    with pytest.raises(NotAFile):
        judge_settings(Disk(), str(tmp_path), "5.5.0")


def test_a_release_that_is_not_known_and_no_store(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"known are 4\.9\.8, 5\.3\.1"):
        looked(tmp_path, "6.0")
    with pytest.raises(NotAStore):
        looked(tmp_path, "5.5.0")


def test_every_code_has_a_test() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert {code for code in RULES if f'"{code}"' not in source} == set()
