"""doctor: everything that keeps a broker from starting can be made and is found, and is told from what does not."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.config import BrokerRole, StoreConfig, load_broker
from engine.files.disk import Disk
from engine.files.file_system import Usage
from engine.files.lock import StoreLock
from engine.inspect.check import doctor as module
from engine.inspect.check.doctor import DOCTOR_CODES, DoctorResult, doctor
from engine.inspect.check.doctor_conf import CONF_CODES
from engine.inspect.finding_codes import Severity
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from tests.conftest import Store
from tests.engine.repair.test_rules import put, settings
from tests.support import golden, layouts, stores
from tests.support.config import config_of, with_a_hidden_topic, without_a_table

SEGMENT = 131072


class Half(Disk):
    """A disk that is half used."""

    used = 0.5

    def disk_used_ratio(self, path: str) -> float:
        return self.used


def look(store: Path, disk: Disk | None = None, **changes: Any) -> DoctorResult:
    return doctor(disk or Half(), StoreConfig(store_path_root_dir=store).with_changes(**changes))


def codes(found: DoctorResult) -> set[str]:
    """Without notes on what is not there: Java, Spark, a config/ that a bare store has none of."""
    notes = ("-missing", "config-none")
    return {f.code for f in found.findings if not f.code.endswith(notes) or f.severity is not Severity.INFO}


def touch(*parts: str, text: str = "") -> Callable[[Path], None]:
    def make(store: Path) -> None:
        path = store.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return make


def remove(*parts: str) -> Callable[[Path], None]:
    def make(store: Path) -> None:
        path = store.joinpath(*parts)
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return make


def absent(*names: str) -> Callable[[Path], None]:
    def make(store: Path) -> None:
        store.joinpath(*names).unlink()
        store.joinpath(*names).symlink_to(store.parent / "not-mounted" / names[-1])

    return make


def both(store: Path) -> None:
    touch("config", "topics.json", text="{")(store)
    touch("config", "topics.json.bak", text="{}")(store)


def bad_backup(store: Path) -> None:
    touch("config", "topics.json", text="{}")(store)
    touch("config", "topics.json.bak", text="{")(store)


def repaired(*change: Callable[[Path], None], left: tuple[str, ...]) -> Callable[[Path], None]:
    """A bridged gap, of whose marks only some are left."""

    def make(store: Path) -> None:
        for one in change:
            one(store)
        apply(Disk(), plan_recover(Disk(), StoreConfig(store_path_root_dir=store), bridge=True))
        (directory,) = (store / "salvage").iterdir()
        for name in left:
            (directory / name).touch()
        if not left:
            (directory / "applied.json").unlink()

    return make


GAP = remove("commitlog", f"{SEGMENT:020d}")


def make_queue_empty(store: Path) -> None:
    queue = max((store / "consumequeue").glob("*/*"))
    (last,) = queue.iterdir()
    with (queue / f"{7 * last.stat().st_size:020d}").open("wb") as file:
        file.truncate(last.stat().st_size)


MAKERS: dict[str, Callable[[Path], None]] = {
    "store-missing": shutil.rmtree,
    "store-kind": lambda store: [(store / f"dledger-{member}").mkdir() for member in ("n0", "n1")] and None,
    "newer-store": touch("config", "tieredStoreMetadata.json"),
    "dledger-store": lambda store: (store / "dledger-n0").mkdir(),
    "file-size": lambda store: os.truncate(store / "commitlog" / f"{SEGMENT:020d}", 77),
    "file-stray": touch("commitlog", ".DS_Store"),
    "file-absent": absent("commitlog", f"{SEGMENT:020d}"),
    "file-ignored": touch("consumequeue", "notes"),
    "queue-empty": make_queue_empty,
    "mount-top": lambda store: (store / "commitlog" / "lost+found").mkdir(),
    "not-closed": touch("abort"),
    "log-misplaced": lambda store: layouts.swap_names(*sorted((store / "commitlog").iterdir())[:2]),
    "log-surplus": lambda store: layouts.add_shifted(store / "commitlog"),
    "log-missing": remove("commitlog"),
    "log-gap": GAP,
    "log-accepted": repaired(GAP, left=("applied.json",)),
    "repair-unfinished": repaired(GAP, left=()),
    "undo-unfinished": repaired(GAP, left=("undoing.json",)),
    "checkpoint-missing": remove("checkpoint"),
    "config-none": lambda store: None,
    "config-value": touch("config", "topics.json", text='{"topicConfigTable":{"T":5}}'),
    "config-bad": touch("config", "consumerOffset.json", text="{"),
    "config-bak": both,
    "config-not-strict": config_of("topics.json", "{topicConfigTable:{},}"),
    "config-missing": config_of("consumerOffset.json", '{"offsetTable":{}}'),
    "config-absent": without_a_table,
    "topic-hidden": with_a_hidden_topic,
    "group-disabled": config_of("subscriptionGroup.json", '{"subscriptionGroupTable":{"g":{"consumeEnable":false}}}'),
    "config-bak-bad": bad_backup,
}
BY_OTHER_TESTS = {
    "own-keys",  # test_hostile_store.py
    "ha-open",  # test_replicate.py
    *("rocksdb-damage", "rocksdb-torn"),  # test_rocksdb.py
    "newer-part",  # tests/rstore_cli/test_newer_stores.py
    *(
        "path-missing",
        "path-unnamed",
        "file-twice",
        "size-setting",
        "size-needed",
        "permission",
        "read-only",
        "disk-full",
        "disk-forced",
        "disk-stuck",
        "disk-space",
    ),
    *CONF_CODES,
    *("running", "slave", "java-missing", "spark-missing"),
}


def test_every_code_has_a_test() -> None:
    assert MAKERS.keys() | BY_OTHER_TESTS == DOCTOR_CODES.keys()


@pytest.mark.leaves
@pytest.mark.parametrize("code", MAKERS)
def test_every_finding_can_be_made(code: str, fixture_copy: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fixture_copy("clean-small")
    assert look(store).starts
    if code == "mount-top":  # a real mount, which not every machine allows: tests/faults/test_mounted.py
        monkeypatch.setattr(Disk, "is_mount_point", lambda _, path: os.path.basename(path) == "commitlog")
    MAKERS[code](store)
    before = stores.snapshot(store) if store.exists() else None
    found = look(store)
    assert code in {f.code for f in found.findings}, found.findings
    assert before is None or stores.snapshot(store) == before
    assert found.starts == all(f.severity is not Severity.ERROR for f in found.findings)


@pytest.mark.parametrize("name", ["clean-small", "lmq", "transient-ext"])
def test_a_sound_store_starts(name: str, fixture_store: Store) -> None:
    found = look(fixture_store(name))
    assert found.starts
    assert codes(found) == {"size-needed"}
    assert found.sizes["mappedFileSizeCommitLog"] == SEGMENT
    assert found.code_14 == ()


def test_apache_s_own_sizes_need_no_word(golden_store: Store) -> None:
    assert codes(look(golden_store("default-sizes-tiny"))) == set()
    assert golden.NAMES


def test_a_size_that_is_not_the_files(fixture_store: Store) -> None:
    found = look(fixture_store("clean-small"), mapped_file_size_commit_log=1 << 20)
    assert {"size-setting", "file-size"} <= codes(found)
    (one,) = [f for f in found.findings if f.code == "size-setting"]
    assert (one.where, str(SEGMENT) in one.message) == ("mappedFileSizeCommitLog", True)


def test_several_paths(fixture_copy: Store, tmp_path: Path) -> None:
    store = fixture_copy("clean-small")
    second = tmp_path / "second"
    paths = f"{store / 'commitlog'},{second}"
    assert "path-missing" in codes(look(store, store_path_commit_log=paths))
    second.mkdir()
    assert look(store, store_path_commit_log=paths).starts
    shutil.copy(store / "commitlog" / f"{SEGMENT:020d}", second)
    found = look(store, store_path_commit_log=paths)
    assert {"file-twice", "size-needed"} == codes(found)
    assert not found.starts


def test_rights_and_read_only(fixture_store: Store) -> None:
    store = fixture_store("clean-small")

    class Refusing(Half):
        def may(self, path: str, *, write: bool) -> bool:
            return not (write and "consumequeue" in path)

        def is_read_only(self, path: str) -> bool:
            return True

    found = look(store, Refusing())
    assert {"permission", "read-only"} <= codes(found)
    assert set(found.code_14) == {"the file system is read-only", "files can't be written"}


@pytest.mark.parametrize(
    ("used", "code", "settings"),
    [
        (0.91, "disk-full", {}),
        (0.9, "disk-forced", {}),
        (0.76, "disk-forced", {}),
        (0.75, None, {}),
        (0.76, "disk-stuck", {"delete_when": "noon"}),
        (0.85, "disk-forced", {"disk_max_used_space_ratio": 5}),
        (0.95, "disk-forced", {"disk_max_used_space_ratio": 100, "disk_space_warning_level_ratio": 0.99}),
        (0.11, "disk-forced", {"disk_max_used_space_ratio": 5}),
        (0.09, None, {"disk_max_used_space_ratio": 5}),
    ],
)
def test_the_disk(used: float, code: str | None, settings: dict[str, Any], fixture_store: Store) -> None:
    disk = Half()
    disk.used = used
    found = look(fixture_store("clean-small"), disk, **settings)
    assert codes(found) - {"size-needed"} == ({code} if code else set())
    assert bool(found.code_14) == (code == "disk-full")
    assert found.starts


def test_no_room_for_a_segment(fixture_store: Store) -> None:
    class Cramped(Half):
        def usage(self, path: str) -> Usage:
            return Usage(1 << 30, (1 << 30) - 4096, 4096)

    found = look(fixture_store("clean-small"), Cramped())
    assert "disk-space" in codes(found)
    assert found.starts
    (one,) = [f for f in found.findings if f.code == "disk-space"]
    assert "4096 bytes are free" in one.message
    assert "--salvage-dir" in one.hint


@pytest.mark.leaves("not-closed")
def test_a_slave_and_a_running_store(fixture_copy: Store) -> None:
    store = fixture_copy("crashed-small")
    with StoreLock(Disk(), str(store)):
        found = look(store, broker_role=BrokerRole.SLAVE)
    assert codes(found) == {"size-needed", "running", "slave"}
    assert found.code_14 == ("this broker is a slave",)


def test_java_and_spark(fixture_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fixture_store("clean-small")
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    found = look(store)
    assert {"java-missing", "spark-missing"} <= {f.code for f in found.findings}
    assert (found.java, found.spark, found.starts) == (None, False, True)
    monkeypatch.setattr(module.shutil, "which", lambda _: "/usr/bin/java")
    assert look(store).java == "/usr/bin/java"


@pytest.mark.leaves("file-size", "index-missing")
def test_a_store_that_can_t_be_surveyed(fixture_copy: Store) -> None:
    """Index files whose layout nobody can tell: a finding, no error."""
    store = fixture_copy("clean-small")
    for path in (store / "index").iterdir():
        os.truncate(path, 1001)
    found = look(store)
    assert "file-size" in codes(found)
    assert not found.starts


def test_a_segment_cut_short_gets_the_command_that_mends_it(tmp_path: Path) -> None:
    put(tmp_path, 700)
    segment = sorted((tmp_path / "commitlog").iterdir())[1]
    size = segment.stat().st_size
    with segment.open("r+b") as file:
        file.truncate(size - 5000)
    (finding,) = [f for f in doctor(Disk(), settings(tmp_path)).findings if f.code == "file-size"]
    assert f"{size - 5000} bytes instead of {size}" in finding.message
    assert "recover --bridge" in finding.hint
    apply(Disk(), plan_recover(Disk(), settings(tmp_path), bridge=True))


CONF = """namesrvAddr=127.0.0.1
fileReservedTime=72 # hours
storePathIndex=/elsewhere
brokerNam=b
rocketmq.broker.diskSpaceWarningLevelRatio=0.4
deleteWhen=x
aclEnable=true
recallMessageEnable=true
"""


def test_the_brokers_file_is_looked_at(fixture_copy: Store, tmp_path: Path) -> None:
    store, conf = fixture_copy("clean-small"), tmp_path / "broker.conf"
    conf.write_text(CONF)
    settings = dataclasses.replace(load_broker(conf), store_path_root_dir=store)
    found = doctor(Half(), settings, str(conf))
    told = {f.code: f for f in found.findings if f.code in CONF_CODES}
    assert told.keys() == CONF_CODES.keys()
    assert told["conf-start"].where == f"{conf}: namesrvAddr"
    assert told["conf-misread"].where == f"{conf}:2"
    assert told["conf-unknown"].where == f"{conf}:4"
    assert "did you mean brokerName?" in told["conf-unknown"].message
    assert "read by RocketMQ 5.3.3 and later, not by a 4.9.8 broker" in told["conf-newer"].message
    assert "port 10912 of Apache's broker" in told["conf-open"].message
    assert not found.starts
    (full,) = [f.message for f in found.findings if f.code == "disk-full"]
    assert "50% used, the limit is 40%" in full
    assert "90 %" not in "".join((full, *(found.code_14 or ())))
    assert found.to_json()["configuration"]["keys"][1]["verdict"] == "misread"
    conf.write_text("mappedFileSizeCommitLog=131072 # as the files\n")
    (wrong,) = [f for f in doctor(Half(), settings, str(conf)).findings if f.code == "size-setting"]
    assert "1073741824, is in force; the files have 131072" in wrong.message
    conf.write_text("fileReservedTime=48\n")
    found = doctor(Half(), settings, str(conf))
    assert found.starts
    assert not {f.code for f in found.findings} & CONF_CODES.keys()
