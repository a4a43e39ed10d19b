"""Settings: Apache's names and defaults, read from its own properties file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import config
from engine.config import BrokerRole, FlushDiskType, StoreConfig, apache_key
from engine.errors import InvalidArgument, StorageError

BROKER_CONF = r"""
# Licensed to somebody
brokerClusterName = DefaultCluster
brokerName=broker-a
! another comment
deleteWhen = 04
fileReservedTime = 48
brokerRole = SYNC_MASTER
flushDiskType = SYNC_FLUSH
storePathRootDir=/data/rocketmq/store
storePathCommitLog = /disk1/commitlog,/disk2/commitlog
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue : 20000
maxHashSlotNum 1000
maxIndexNum=4000
transientStorePoolEnable=TRUE
messageDelayLevel=1s 5s \
                  10s
cl\u00e9=valeur
"""


def test_a_broker_conf() -> None:
    found = config.parse(BROKER_CONF)
    assert found.store_path_root_dir == Path("/data/rocketmq/store")
    assert found.commit_log_paths == (Path("/disk1/commitlog"), Path("/disk2/commitlog"))
    assert found.broker_role is BrokerRole.SYNC_MASTER
    assert found.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert (found.mapped_file_size_commit_log, found.mapped_file_size_consume_queue) == (1048576, 20000)
    assert (found.max_hash_slot_num, found.max_index_num, found.file_reserved_time) == (1000, 4000, 48)
    assert found.transient_store_pool_enable
    assert found.message_delay_level == "1s 5s 10s"
    assert found.other == {"brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "clé": "valeur"}


def test_apaches_defaults() -> None:
    found = config.parse("")
    assert found == StoreConfig()
    assert found.store_path_root_dir == Path.home() / "store"
    assert found.commit_log_paths == (Path.home() / "store" / "commitlog",)
    assert found.read_only_commit_log_paths == ()
    assert found.mapped_file_size_commit_log == 1073741824
    assert found.mapped_file_size_consume_queue == 6000000
    assert (found.max_hash_slot_num, found.max_index_num) == (5000000, 20000000)
    assert found.max_message_size == 4194304
    assert found.flush_disk_type is FlushDiskType.ASYNC_FLUSH
    assert found.message_delay_level == "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@pytest.mark.parametrize(
    ("field", "key"),
    [
        ("store_path_root_dir", "storePathRootDir"),
        ("mapped_file_size_consume_queue_ext", "mappedFileSizeConsumeQueueExt"),
        ("check_crc_on_recover", "checkCRCOnRecover"),
        ("enable_d_leger_commit_log", "enableDLegerCommitLog"),
        ("destroy_maped_file_interval_forcibly", "destroyMapedFileIntervalForcibly"),
    ],
)
def test_apaches_keys(field: str, key: str) -> None:
    assert apache_key(field) == key


def as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.value) if isinstance(value, FlushDiskType | BrokerRole) else str(value)


def test_every_setting_is_read_under_its_key() -> None:
    """Each field, changed, written as Apache would, comes back."""
    base = StoreConfig()
    changes: dict[str, object] = {
        "broker_role": BrokerRole.SLAVE,
        "flush_disk_type": FlushDiskType.SYNC_FLUSH,
        "store_path_root_dir": Path("/elsewhere"),
        "mapped_file_size_consume_queue": 40000,
    }
    for field in dataclasses.fields(StoreConfig):
        if field.name in config.NOT_SETTINGS:
            continue
        value = getattr(base, field.name)
        new = changes.get(field.name)
        if new is None:
            new = not value if isinstance(value, bool) else value + 1 if isinstance(value, int | float) else "/text"
        found = config.parse(f"{apache_key(field.name)}={as_text(new)}")
        assert found == dataclasses.replace(base, given=frozenset({field.name}), **{field.name: new})


def test_what_a_file_says_goes_on_top_of_the_base() -> None:
    base = StoreConfig(file_reserved_time=5, max_index_num=50)
    found = config.parse("maxIndexNum=60", base)
    assert (found.file_reserved_time, found.max_index_num) == (5, 60)


@pytest.mark.parametrize("text", ["true", "TRUE", " True "])
def test_true(text: str) -> None:
    assert config.parse(f"enableLmq={text}").enable_lmq


@pytest.mark.parametrize("text", ["false", "yes", "1", ""])
def test_anything_else_is_false_as_in_java(text: str) -> None:
    assert not config.parse(f"enableLmq={text}").enable_lmq


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mappedFileSizeCommitLog=big", "mappedFileSizeCommitLog = 'big' is not a 32-bit integer"),
        ("maxIndexNum=1_000", "is not a 32-bit integer"),
        ("maxIndexNum=", "is not a 32-bit integer"),
        ("brokerRole=KING", "brokerRole = 'KING' is not one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ("mappedFileSizeCommitLog=4095", "mappedFileSizeCommitLog = 4095"),
        ("mappedFileSizeCommitLog=2147483648", "is not a 32-bit integer"),
        ("rocketmq.broker.diskSpaceWarningLevelRatio=full", "is not a fraction of 1"),
        ("brokerRole=slave", "is not one of"),
        ("mappedFileSizeConsumeQueue=20001", "a positive multiple of 20"),
        ("mappedFileSizeConsumeQueue=0", "a positive multiple of 20"),
        ("mappedFileSizeConsumeQueueExt=63", "mappedFileSizeConsumeQueueExt"),
        ("maxHashSlotNum=0", "maxHashSlotNum"),
        ("maxIndexNum=1", "maxIndexNum"),
        ("maxMessageSize=0", "maxMessageSize"),
        ("a=\\u12", "not a properties file"),
    ],
)
def test_settings_that_no_store_can_have(text: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        config.parse(text)


def test_changes_are_checked() -> None:
    assert StoreConfig().with_changes(max_index_num=7).max_index_num == 7
    with pytest.raises(InvalidArgument):
        StoreConfig().with_changes(max_index_num=1)


@pytest.mark.parametrize(
    ("enabled", "flush", "role", "active"),
    [
        (True, FlushDiskType.ASYNC_FLUSH, BrokerRole.ASYNC_MASTER, True),
        (True, FlushDiskType.ASYNC_FLUSH, BrokerRole.SYNC_MASTER, True),
        (True, FlushDiskType.SYNC_FLUSH, BrokerRole.ASYNC_MASTER, False),
        (True, FlushDiskType.ASYNC_FLUSH, BrokerRole.SLAVE, False),
        (False, FlushDiskType.ASYNC_FLUSH, BrokerRole.ASYNC_MASTER, False),
    ],
)
def test_the_transient_pool_is_for_asynchronous_masters(
    enabled: bool, flush: FlushDiskType, role: BrokerRole, active: bool
) -> None:
    found = StoreConfig(transient_store_pool_enable=enabled, flush_disk_type=flush, broker_role=role)
    assert found.transient_store_pool_active is active


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=ü\nmaxIndexNum=9\n", encoding="utf-8")
    found = config.load(path)
    assert (found.max_index_num, found.other) == (9, {"brokerName": "ü"})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    with pytest.raises(StorageError) as missing:
        config.load(path)
    assert missing.value.path == str(path)
    path.write_bytes(b"a=b\nc=\xff")
    with pytest.raises(InvalidArgument) as latin:
        config.load(path)
    assert (latin.value.path, latin.value.offset) == (str(path), 6)
    path.write_text("maxIndexNum=x")
    with pytest.raises(InvalidArgument, match="maxIndexNum") as wrong:
        config.load(path)
    assert wrong.value.path == str(path)


CONF = """listenPort=10911 # clients
storePathRootDir=/data/store
storePathCommitLog=/data/store/commitlog, /other
mappedFileSizeCommitLog=1048576 # 1 MiB
mappedFileSizeConsumeQueue=20001
flushDiskType=SYNC_FLUSH
brokerRole=SLAVE\x20
deleteWhen=04 # at night
fileReservedTime=72 # hours
messageIndexEnable=yes
brokerName=ü
rocketmq.broker.diskSpaceWarningLevelRatio=0.95
rocketmq.broker.diskSpaceCleanForciblyRatio=most
"""


def test_a_brokers_file_is_read_as_a_broker_reads_it(tmp_path: Path) -> None:
    """tests/compat/test_conf.py has Apache say what is in force; here, that it is taken over."""
    path = tmp_path / "broker.conf"
    path.write_text(CONF, encoding="utf-8")
    found = config.load_broker(path)
    assert found.given == {
        *("store_path_root_dir", "store_path_commit_log", "mapped_file_size_consume_queue", "flush_disk_type"),
        *("delete_when", "message_index_enable", "disk_space_warning_level_ratio"),
    }
    assert found.commit_log_paths == (Path("/data/store/commitlog"), Path(" /other"))
    assert found.mapped_file_size_commit_log == 1 << 30
    assert found.mapped_file_size_consume_queue == 20020
    assert (found.broker_role, found.flush_disk_type) == (BrokerRole.ASYNC_MASTER, FlushDiskType.SYNC_FLUSH)
    assert (found.delete_when, found.file_reserved_time) == ("04 # at night", 72)
    assert not found.message_index_enable
    assert (found.disk_space_warning_level_ratio, found.disk_space_clean_forcibly_ratio) == (0.95, 0.85)
    assert found.other == {"listenPort": "10911 # clients", "brokerName": "Ã¼"}


@pytest.mark.parametrize(
    ("text", "directories"),
    [
        ("/ro ", ["/ro"]),
        ("\\ /a,/b\\t", ["/a", "/b"]),
        ("/a ,/b", ["/a ", "/b"]),
        ("\\u0020", []),
        ("", []),
        (",/a,", ["/a"]),
    ],
)
def test_read_only_directories_are_trimmed_as_a_whole(text: str, directories: list[str], tmp_path: Path) -> None:
    """Source: MultiPathMappedFileQueue#getReadonlyPaths. What is empty holds no segment."""
    path = tmp_path / "broker.conf"
    path.write_text(f"storePathCommitLog=/log,\nreadOnlyCommitLogStorePaths={text}\n")
    for found in (config.load_broker(path), config.of_store(tmp_path, path)):
        assert found.log_directories == ("/log", *directories)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a=\\u12", "no broker starts with this file"),
        ("mappedFileSizeCommitLog=100", "4 KiB to 2 GiB"),
        ("mappedFileSizeConsumeQueue=2147483647", "a positive multiple of 20"),
    ],
)
def test_what_is_refused_of_a_brokers_file_names_the_command_that_explains_it(
    text: str, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "my broker.conf"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=why) as refused:
        config.load_broker(path)
    assert refused.value.path == str(path)
    assert refused.value.hint
    if "u12" not in text:
        assert f"rstore doctor --conf '{path}'" in refused.value.hint


@given(st.dictionaries(st.text("abcXYZ.é", min_size=1), st.text("abc 1=:#!é", max_size=9).map(str.strip)))
def test_unknown_keys_are_kept(other: dict[str, str]) -> None:
    import javaproperties

    assert config.parse(javaproperties.dumps(other, timestamp=False)).other == other
