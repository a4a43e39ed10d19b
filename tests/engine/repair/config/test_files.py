"""Files of config/: what a broker makes of each, whatever is in it, and how the commands say so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.inspect.check.check import check
from engine.inspect.check.doctor import doctor
from engine.inspect.dump.dump import dump_config
from engine.inspect.status.status import status
from engine.inspect.store.config_files import LARGEST, ConfigFileState, Fate, as_table, fate, parse, read_table
from engine.inspect.store.config_shapes import CONSUMERS, DELAYS, GROUPS, TOPICS
from engine.repair.config.consumer_offsets import list_offsets
from tests.conftest import Store
from tests.support import stores
from tests.support.config import write_config

_TOPIC = '{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"T":%s}}'
_GROUP = '{"subscriptionGroupTable":{"g":%s}}'

SOUND, BLANK, BROKEN, WRONG = (
    ConfigFileState.SOUND,
    ConfigFileState.BLANK,
    ConfigFileState.BROKEN,
    ConfigFileState.WRONG,
)

# Each was given to the classes of 4.9.8: SOUND and BLANK load there, the others throw.
CASES = [
    (CONSUMERS, "", ConfigFileState.EMPTY),
    (CONSUMERS, "  \n", BLANK),
    (CONSUMERS, "\0\0\0", BROKEN),
    (CONSUMERS, "null", BLANK),
    (CONSUMERS, "[]", BLANK),
    (CONSUMERS, "{}", SOUND),
    (CONSUMERS, '"x"', BROKEN),
    (CONSUMERS, '{"offsetTable":[]}', BROKEN),
    (CONSUMERS, '{"offsetTable":null}', BROKEN),
    (CONSUMERS, '{"offsetTable":{"T@g":null}}', WRONG),
    (CONSUMERS, '{"offsetTable":{"T@g":[]}}', WRONG),
    (CONSUMERS, '{"offsetTable":{"T@g":{0:"5"}}}', SOUND),
    (CONSUMERS, '{"offsetTable":{"T@g":{0:5.7}}}', SOUND),
    (CONSUMERS, '{"offsetTable":{"T@g":{0:1e3}}}', SOUND),
    (CONSUMERS, '{"offsetTable":{"T@g":{0:1e999}}}', WRONG),
    (CONSUMERS, '{"offsetTable":{"T@g":{0:NaN}}}', WRONG),
    (CONSUMERS, '{"offsetTable":{"T@g":{0:true}}}', WRONG),
    (CONSUMERS, '{"offsetTable":{"T@g":{0:99999999999999999999}}}', WRONG),
    (CONSUMERS, '{"offsetTable":{"T@g":{"x":5}}}', WRONG),
    (CONSUMERS, '{"offsetTable":{"T@g":{4294967296:5}}}', WRONG),
    (CONSUMERS, '{"offsetTable":{"T@g":{0:5}},}', SOUND),
    (CONSUMERS, '{"offsetTable":{"T@g":{0:5}}', BROKEN),
    (CONSUMERS, '{"offsetTable":{"T@g":{0:5}}}xyz', BROKEN),
    (CONSUMERS, "{'offsetTable':{'T@g':{0:5}}}", SOUND),
    (CONSUMERS, '\ufeff{"offsetTable":{"T@g":{0:5}}}', SOUND),
    (CONSUMERS, '{"offsetTable":{"T@g":{0:5,0:6}}}', SOUND),
    (TOPICS, '{"topicConfigTable":null}', BROKEN),
    (TOPICS, '{"dataVersion":null,"topicConfigTable":{}}', SOUND),
    (TOPICS, '{"dataVersion":5,"topicConfigTable":{}}', WRONG),
    (TOPICS, _TOPIC % "null", WRONG),
    (TOPICS, _TOPIC % "5", WRONG),
    (TOPICS, _TOPIC % "{}", SOUND),
    (TOPICS, _TOPIC % '{"readQueueNums":"4"}', SOUND),
    (TOPICS, _TOPIC % '{"readQueueNums":"x"}', WRONG),
    (TOPICS, _TOPIC % '{"readQueueNums":99999999999}', WRONG),
    (TOPICS, _TOPIC % '{"perm":"RW"}', WRONG),
    (TOPICS, _TOPIC % '{"perm":true}', SOUND),
    (TOPICS, _TOPIC % '{"order":"x"}', WRONG),
    (TOPICS, _TOPIC % '{"attributes":{"+a":"b"}}', SOUND),
    (GROUPS, _GROUP % '{"consumeEnable":"false"}', SOUND),
    (GROUPS, _GROUP % '{"consumeEnable":"x"}', WRONG),
    (GROUPS, _GROUP % '{"retryMaxTimes":"x"}', WRONG),
    (DELAYS, '{"offsetTable":{1:"x"}}', WRONG),
    (DELAYS, '{"offsetTable":{1:null}}', WRONG),
    (DELAYS, '{"offsetTable":{1:{}}}', WRONG),
    (DELAYS, "{", BROKEN),
    (DELAYS, '{"offsetTable":{99:5}}', SOUND),
]


@pytest.mark.parametrize(("name", "text", "state"), CASES)
def test_what_apache_makes_of_it(name: str, text: str, state: ConfigFileState) -> None:
    found = as_table(name, parse(text.encode())) if text else None
    assert (ConfigFileState.EMPTY if found is None else found.state) is state
    assert found is None or (found.problem is None) == (state is ConfigFileState.SOUND)


@pytest.mark.parametrize(
    ("file", "backup", "expected"),
    [
        ("{}", "{", Fate.FILE),
        (" ", "{}", Fate.FILE),  # nothing is loaded, and the .bak is not looked at
        ("", "{}", Fate.BACKUP),
        (None, "{}", Fate.BACKUP),
        ("{", "{}", Fate.BACKUP),
        ("{", None, Fate.NONE),
        ("{", "", Fate.NONE),
        (None, None, Fate.NONE),
        ("{", "{", Fate.FAILS),
        (None, "{", Fate.FAILS),
    ],
)
def test_what_a_broker_does(file: str | None, backup: str | None, expected: Fate, tmp_path: Path) -> None:
    """ConfigManager#load and #loadBak."""
    for name, text in ((TOPICS, file), (f"{TOPICS}.bak", backup)):
        if text is not None:
            (tmp_path / name).write_text(text)
    disk, place = Disk(), str(tmp_path)
    assert fate(read_table(disk, place, TOPICS), read_table(disk, place, TOPICS, backup=True)) is expected


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        os.truncate(file.fileno(), 1 << 40)


HOSTILE = {
    "sparse": _sparse,
    "not a number": lambda path: path.write_text('{"offsetTable":{"Hot@g":{0:NaN,1:1e999}}}'),
    "many digits": lambda path: path.write_text('{"offsetTable":{"Hot@g":{0:' + "9" * 9000 + "}}}"),
    "nested": lambda path: path.write_text('{"offsetTable":' + "[" * 100_000),
    "utf-16": lambda path: path.write_text('{"offsetTable":{}}', encoding="utf-16"),
    "bytes": lambda path: path.write_bytes(bytes(range(256))),
    "directory": lambda path: path.mkdir(),
    "dangling": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.leaves("config-bad", "config-value", "file-absent", "file-stray")
@pytest.mark.parametrize("name", [CONSUMERS, DELAYS, TOPICS, GROUPS])
@pytest.mark.parametrize("kind", HOSTILE)
def test_whatever_lies_there_is_a_finding(kind: str, name: str, fixture_copy: Store) -> None:
    store = fixture_copy("clean-small")
    write_config(store)
    (store / "config" / name).unlink()
    HOSTILE[kind](store / "config" / name)
    before = stores.snapshot(store) if kind not in ("sparse", "dangling") else None
    disk, config = Disk(), StoreConfig(store_path_root_dir=store)
    codes = {"config-bad", "config-value", "config-missing", "config-absent"}
    for found in (check(disk, config).findings, doctor(disk, config).findings, status(disk, config).findings):
        one = [f for f in found if f.code in codes and f.where.startswith(f"config/{name}")]
        assert one or kind in ("not a number", "many digits"), found
        # A directory is set aside first; the target of a link is to be mounted, so no command is named for it.
        first = {"directory": "recover", "dangling": "mount"}.get(kind, "rebuild-config")
        assert all(first in f.hint for f in one), [f.hint for f in one]
    list(dump_config(disk, config))
    list_offsets(disk, config)
    assert before is None or stores.snapshot(store) == before


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    text = b'{"offsetTable":{}}'
    (tmp_path / CONSUMERS).write_bytes(text + b" " * (LARGEST - len(text)))
    assert read_table(Disk(), str(tmp_path), CONSUMERS).state is ConfigFileState.SOUND
