"""check: each finding can be made and is found, undamaged stores have none, nothing is written."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.config import StoreConfig
from engine.errors import NotAStore
from engine.files.disk import Disk
from engine.format.index_file import ENTRY_SIZE, IndexLayout
from engine.format.queue_ext import to_offset
from engine.format.queue_unit import PRE_BLANK, UNIT_SIZE
from engine.inspect.check.check import CheckResult, check
from engine.inspect.finding_codes import CODES, Severity
from engine.inspect.store.survey import survey
from engine.log import scan
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from tests.conftest import Store
from tests.engine.repair import corpus
from tests.support import fixtures, golden, layouts, mutate, references, stores
from tests.support.checking import check_clean
from tests.support.config import config_of, with_a_hidden_topic, without_a_table
from tests.support.wide import sample

SEGMENT = 131072


def config(store: Path) -> StoreConfig:
    return StoreConfig(store_path_root_dir=store)


def look(store: Path, **options: Any) -> CheckResult:
    return check(Disk(), config(store), **options)


def codes(found: CheckResult) -> set[str]:
    return {f.code for f in found.findings}


# --- damage ----------------------------------------------------------------------------------------------------------


def write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip(path: Path, at: int, bits: int = 0xFF) -> None:
    write(path, at, bytes([path.read_bytes()[at] ^ bits]))


def records(name: str = "clean-small") -> list[dict[str, Any]]:
    return [m for m in fixtures.dump(name) if m["type"] == "log"]


def log(store: Path, offset: int, data: bytes) -> None:
    write(store / "commitlog" / f"{offset // SEGMENT * SEGMENT:020d}", offset % SEGMENT, data)


def message(name: str = "clean-small", skip: int = 0, **wanted: Any) -> dict[str, Any]:
    """A message that consumers get, with such fields."""
    found = [m for m in fixtures.dump(name) if m["type"] == "msg" and all(m[k] == v for k, v in wanted.items())]
    return found[skip]


def unit(store: Path, line: dict[str, Any]) -> tuple[Path, int]:
    """File and position of a message's unit."""
    at = line["queueOffset"] * UNIT_SIZE
    for path in sorted((store / "consumequeue" / line["topic"] / str(line["queueId"])).iterdir()):
        if int(path.name) <= at < int(path.name) + path.stat().st_size:
            return path, at - int(path.name)
    raise AssertionError(line)


def busy(store: Path) -> dict[str, Any]:
    """A message in the middle of the longest queue."""
    lines = [m for m in fixtures.dump("clean-small") if m["type"] == "msg"]
    queues: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for line in lines:
        if line["topic"] != "SCHEDULE_TOPIC_XXXX":
            queues.setdefault((line["topic"], line["queueId"]), []).append(line)
    longest = max(queues.values(), key=len)
    return sorted(longest, key=lambda m: m["queueOffset"])[len(longest) // 2]


def entry(store: Path, number: int) -> tuple[Path, int]:
    """File and position of an entry of the first index file."""
    layout: IndexLayout = survey(Disk(), config(store)).index_layout
    return min((store / "index").iterdir()), layout.entry_position(number)


def put_config(store: Path, name: str, value: object) -> None:
    (store / "config").mkdir(exist_ok=True)
    text = value if isinstance(value, str) else json.dumps(value)
    (store / "config" / name).write_text(text, encoding="utf-8")


def salvage(store: Path, **manifest: object) -> None:
    (store / "salvage" / "20260101-recover").mkdir(parents=True)
    (store / "salvage" / "20260101-recover" / "manifest.json").write_text(json.dumps({"pieces": [], **manifest}))


def damage_body(store: Path) -> dict[str, Any]:
    line = next(m for m in records()[100:] if m["size"] > 300)
    log(store, line["physicalOffset"] + 100, b"\xff\xfe\xfd")
    return line


def make_damage(store: Path) -> None:
    damage_body(store)


def set_unit(store: Path, line: dict[str, Any], data: bytes, at: int = 0) -> None:
    path, position = unit(store, line)
    write(path, position + at, data)


def ext_unit(store: Path) -> tuple[Path, int]:
    """File and position of an extension unit that a queue names."""
    line = message("transient-ext", topic="Hot", queueId=0, queueOffset=0)
    path, position = unit(store, line)
    offset = to_offset(int.from_bytes(path.read_bytes()[position + 12 : position + 20], "big", signed=True))
    files = sorted((store / "consumequeue_ext" / "Hot" / "0").iterdir())
    size = files[0].stat().st_size
    return files[0].with_name(f"{offset - offset % size:020d}"), offset % size


Maker = Callable[[Path], None]


def make_file_size(store: Path) -> None:
    os.truncate(min((store / "commitlog").iterdir()), 5000)


def make_queue_gap(store: Path) -> None:
    queue = max((store / "consumequeue").glob("*/*"), key=lambda path: len(list(path.iterdir())))
    files = sorted(queue.iterdir())
    assert len(files) > 2
    files[1].unlink()


def make_queue_empty(store: Path) -> None:
    queue = max((store / "consumequeue").glob("*/*"), key=lambda path: len(list(path.iterdir())))
    last = max(queue.iterdir())
    size = last.stat().st_size
    with (queue / f"{int(last.name) + 7 * size:020d}").open("wb") as file:
        file.truncate(size)


def make_log_tail(store: Path) -> None:
    log(store, fixtures.manifest("clean-small")["maxPhyOffset"] + 5000, b"left")


def make_log_offset(store: Path) -> None:
    log(store, records()[40]["physicalOffset"] + 28, (77).to_bytes(8, "big"))


def make_log_accepted(store: Path) -> None:
    line = damage_body(store)
    salvage(store, accepted=[{"offset": line["physicalOffset"], "length": line["size"]}])


def make_unit_repeated(store: Path) -> None:
    line = busy(store)
    path, position = unit(store, line)
    before = path.read_bytes()[position - UNIT_SIZE : position]
    write(path, position, before)


def make_unit_elsewhere(store: Path) -> None:
    one = busy(store)
    other = message(topic="SCHEDULE_TOPIC_XXXX")
    set_unit(store, one, other["physicalOffset"].to_bytes(8, "big") + other["size"].to_bytes(4, "big"))


def make_index_order(store: Path) -> None:
    one, two = sorted((store / "index").iterdir())
    one.rename(store / "index" / "30000101000000000")
    assert two.exists()


def make_index_twice(store: Path) -> None:
    """The last entry of the first file as the first of the second: as Apache's recovery does."""
    one, two = sorted((store / "index").iterdir())
    layout = survey(Disk(), config(store)).index_layout
    last = layout.entry_position(layout.entries - 1)
    write(two, layout.entry_position(1), one.read_bytes()[last : last + 16])


def make_checkpoint_ahead(store: Path) -> None:
    write(store / "checkpoint", 0, (1 << 50).to_bytes(8, "big"))


def make_consumer(offset: int, topic: str | None = None) -> Maker:
    def make(store: Path) -> None:
        line = busy(store)
        key = f"{topic or line['topic']}@group"
        put_config(store, "consumerOffset.json", {"offsetTable": {key: {line["queueId"]: offset}}})

    return make


def make_unit_missing(store: Path) -> None:
    line = busy(store)
    path, position = unit(store, line)
    write(path, position, bytes(path.stat().st_size - position))
    for later in sorted(path.parent.iterdir()):
        if later.name > path.name:
            later.unlink()


def make_ext(at: int) -> Maker:
    def make(store: Path) -> None:
        path, position = ext_unit(store)
        flip(path, position + at)

    return make


def make_index(number: int, at: int, data: bytes | None = None) -> Maker:
    def make(store: Path) -> None:
        path, position = entry(store, number)
        if data is None:
            flip(path, position + at, 0x01)
        else:
            write(path, position + at, data)

    return make


def make_delivery(value: int | None) -> Maker:
    def make(store: Path) -> None:
        line = message(topic="SCHEDULE_TOPIC_XXXX")
        code = line["cqTagsCode"] + 1 if value is None else value
        set_unit(store, line, code.to_bytes(8, "big"), 12)

    return make


def make_unit_deleted(store: Path) -> None:
    """As mqadmin deleteTopic leaves it: neither a configuration nor queues."""
    put_config(store, "topics.json", {"topicConfigTable": {"X": {"topicName": "X"}}})
    shutil.rmtree(store / "consumequeue" / busy(store)["topic"])


def make_absent(store: Path) -> None:
    """As when the disk that the index lies on is not mounted."""
    shutil.rmtree(store / "index")
    (store / "index").symlink_to(store.parent / "not-mounted")


MAKERS: dict[str, Maker] = {
    "file-size": make_file_size,
    "file-absent": make_absent,
    "file-stray": lambda store: (store / "commitlog" / ".DS_Store").touch(),
    "file-ignored": lambda store: (store / "consumequeue" / "notes").touch(),
    "newer-store": lambda store: (store / "timerwheel.1").write_bytes(bytes(100)),
    "newer-part": lambda store: (store / "timerwheel").write_bytes(bytes(100)),
    "not-closed": lambda store: (store / "abort").touch(),
    "log-misplaced": lambda store: layouts.swap_names(*sorted((store / "commitlog").iterdir())[:2]),
    "log-surplus": lambda store: layouts.add_shifted(store / "commitlog"),
    "log-missing": lambda store: shutil.rmtree(store / "commitlog"),
    "log-gap": lambda store: (store / "commitlog" / f"{SEGMENT:020d}").unlink(),
    "log-damage": make_damage,
    "log-tail": make_log_tail,
    "record-displaced": make_log_offset,
    "log-accepted": make_log_accepted,
    "log-bridged": lambda store: salvage(store, bridged=[{"offset": records()[9]["physicalOffset"], "length": 9}]),
    "queue-empty": make_queue_empty,
    "queue-gap": make_queue_gap,
    "unit-missing": make_unit_missing,
    "unit-deleted": make_unit_deleted,
    "unit-invalid": lambda store: set_unit(store, busy(store), PRE_BLANK.encode()),
    "unit-orphaned": lambda store: set_unit(store, busy(store), b"\x01", 7),
    "unit-foreign": make_unit_elsewhere,
    "unit-tags": lambda store: set_unit(store, busy(store), b"\x01\x02", 18),
    "unit-delivery-time": make_delivery(12345),
    "unit-delivery-other": make_delivery(None),
    "unit-lost": lambda store: (store / "commitlog" / f"{SEGMENT:020d}").unlink(),
    "unit-repeated": make_unit_repeated,
    "ext-missing": make_ext(0),
    "ext-wrong": make_ext(5),
    "index-header": lambda store: flip(min((store / "index").iterdir()), 23),
    "index-entry": make_index(7, 0, b"\xff"),
    "index-link": make_index(7, 16, (7).to_bytes(4, "big")),
    "index-slot": lambda store: flip(min((store / "index").iterdir()), 43, 0x07),
    "index-order": make_index_order,
    "index-orphaned": make_index(7, 11),
    "index-key": make_index(7, 3),
    "index-time": make_index(7, 15),
    "index-missing": lambda store: min((store / "index").iterdir()).unlink(),
    "index-twice": make_index_twice,
    "index-lost": make_damage,
    "checkpoint-missing": lambda store: os.truncate(store / "checkpoint", 10),
    "checkpoint-ahead": make_checkpoint_ahead,
    "config-bad": lambda store: put_config(store, "topics.json", "{"),
    "config-bak": lambda store: (
        [put_config(store, f"topics.json{e}", t) for e, t in (("", "{"), (".bak", "{}"))] and None
    ),
    "config-not-strict": config_of("topics.json", "{topicConfigTable:{},}"),
    "config-missing": config_of("consumerOffset.json", '{"offsetTable":{}}'),
    "config-absent": without_a_table,
    "topic-hidden": with_a_hidden_topic,
    "group-disabled": config_of("subscriptionGroup.json", '{"subscriptionGroupTable":{"g":{"consumeEnable":false}}}'),
    "config-bak-bad": lambda store: (
        [put_config(store, f"topics.json{e}", t) for e, t in (("", "{}"), (".bak", "{"))] and None
    ),
    "config-value": lambda store: put_config(store, "delayOffset.json", '{"offsetTable":{1:"x"}}'),
    "consumer-above": make_consumer(999_999),
    "consumer-queue": make_consumer(5, "Gone"),
    "delay-range": lambda store: put_config(store, "delayOffset.json", '{"offsetTable":{1:999999}}'),
    "topic-unknown": lambda store: put_config(store, "topics.json", {"topicConfigTable": {}}),
    "topic-unused": lambda store: put_config(store, "topics.json", {"topicConfigTable": {"X": {"topicName": "X"}}}),
}
BY_OTHER_TESTS = {
    "ends-not-checked",
    "time-box",
    "record-suspect",
    "record-unusual",
    *("record-crc", "record-crc-missing"),  # test_property_crc.py
    "unit-witness",
    "index-witness",
} | {
    *("repair-unfinished", "undo-unfinished", "disk-space"),  # test_doctor.py makes them
    *("path-missing", "path-unnamed"),  # test_hostile.py
    "unit-surplus",  # test_salvage_gone.py
    "log-stale",  # test_stale_tail.py
    *("dledger-store", "entry-chain", "entry-index", "entry-index-missing", "entry-uncommitted"),  # test_dledger.py
    "unit-time",  # test_batch_queues.py
    *("timer-damage", "timer-orphaned", "timer-foreign", "timer-chain", "timer-slot", "timer-check"),  # test_timer.py
    *(
        "compaction-file",
        "compaction-damage",
        "compaction-unit",
        "compaction-position",
        "compaction-left",
    ),  # …compaction.py
    *("epoch-bad", "epoch-bak", "epoch-ahead", "epoch-order", "checkpoint-offset"),  # test_epochs.py
    *("rocksdb-damage", "rocksdb-torn", "rocksdb-table", "rocksdb-entry", "queue-end", "unit-twice"),  # test_rocksdb.py
}


@pytest.mark.leaves
@pytest.mark.parametrize("code", MAKERS)
def test_every_finding_can_be_made(code: str, fixture_copy: Store) -> None:
    store = fixture_copy("transient-ext" if code.startswith("ext-") else "clean-small")
    MAKERS[code](store)
    before = stores.snapshot(store)
    found = look(store)
    assert stores.snapshot(store) == before
    one = next((f for f in found.findings if f.code == code), None)
    assert one is not None, found.findings
    assert one.severity is CODES[code].severity
    assert one.where
    assert one.hint
    assert found.counts["byCode"][code] >= 1
    # One small damage is a handful of findings, not a flood: causes are named, consequences counted.
    assert code == "topic-unknown" or sum(f.code == code for f in found.findings) <= 21
    assert found.ok == all(f.severity is Severity.INFO for f in found.findings)
    if code in ("log-damage", "unit-orphaned", "index-missing"):
        assert codes(look(store, jobs=2)) == codes(found)


def by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every log were long."""
    pytest.importorskip("numba")
    monkeypatch.setattr(scan, "LONG", 1 << 10)


@pytest.mark.leaves
@pytest.mark.parametrize("code", MAKERS)
def test_by_threads_it_is_the_same(code: str, fixture_copy: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fixture_copy("transient-ext" if code.startswith("ext-") else "clean-small")
    MAKERS[code](store)
    plain = look(store)
    by_kernels(monkeypatch)
    for jobs in (1, 3):
        found = look(store, jobs=jobs)
        assert (found.findings, found.counts) == (plain.findings, plain.counts)


@pytest.mark.leaves
@pytest.mark.wide
@pytest.mark.parametrize("case", sample(corpus.fixture_cases(), 3), ids=lambda case: str(case["id"]))
def test_damaged_stores_by_threads(case: corpus.Case, fixture_copy: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fixture_copy(case["base"])
    mutate.apply(store, case["ops"])
    settings = corpus.config(store, case)
    plain = check(Disk(), settings)
    by_kernels(monkeypatch)
    found = check(Disk(), settings, jobs=2)
    assert (found.findings, found.counts) == (plain.findings, plain.counts)


def test_every_code_has_a_test() -> None:
    assert MAKERS.keys() | BY_OTHER_TESTS == CODES.keys()


# --- nothing wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["clean-small", "lmq", "transient-ext"])
def test_an_undamaged_store_has_no_finding(name: str, fixture_store: Store) -> None:
    store = fixture_store(name)
    before = stores.snapshot(store)
    for settings in (config(store), references.settings(f"fixtures/{name}").with_changes(store_path_root_dir=store)):
        found = check(Disk(), settings)
        assert (found.ok, found.findings) == (True, ())
        assert found.counts["records"] == len(records(name))
        assert found.counts["units"] == sum(1 for m in fixtures.dump(name) if m["type"] == "msg")
    assert stores.snapshot(store) == before


def test_a_log_whose_only_file_is_empty_has_no_finding(fixture_copy: Store) -> None:
    """As retention leaves it, where the next file was made ahead: check named recover, which had nothing to do."""
    store = fixture_copy("clean-small")
    log = sorted((store / "commitlog").iterdir())
    for path in log:
        path.unlink()
    following = log[-1].with_name(f"{int(log[-1].name) + SEGMENT:020d}")
    following.touch()
    os.truncate(following, SEGMENT)
    apply(Disk(), plan_recover(Disk(), config(store)))
    assert look(store).ok
    assert not plan_recover(Disk(), config(store)).changed


@pytest.mark.parametrize("name", ["clean-small", "default-sizes-tiny"])
def test_an_undamaged_golden_store_has_no_finding(name: str, golden_store: Store) -> None:
    assert look(golden_store(name)).findings == ()
    assert look(golden_store(name), jobs=2).findings == ()


def test_keys_that_apache_s_recovery_lost_are_found(golden_store: Store) -> None:
    """apache/rocketmq#8007: after its own recovery a broker's index lacks keys."""
    golden.need()
    found = look(golden_store("crashed-small.after"))
    assert codes(found) == {"index-missing"}
    assert found.counts["byCode"]["index-missing"] > 300


def test_a_crashed_store_is_clean_after_recovery(fixture_copy: Store) -> None:
    store = fixture_copy("crashed-small")
    assert "not-closed" in codes(look(store))
    apply(Disk(), plan_recover(Disk(), config(store)))
    assert check_clean(store).findings == ()


def test_an_empty_store_is_clean(tmp_path: Path) -> None:
    from engine.repair.create import create_store

    create_store(Disk(), config(tmp_path / "new"))
    assert look(tmp_path / "new").findings == ()


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        look(tmp_path)


# --- damage by chance ------------------------------------------------------------------------------------------------


@pytest.mark.leaves
@pytest.mark.parametrize("seed", range(40))
def test_damage_by_chance_is_found(seed: int, fixture_copy: Store) -> None:
    """A flipped bit in any unit, in any index entry but the unused time of entry 1, in any body or head of a record."""
    store = fixture_copy("clean-small")
    rng = random.Random(seed)
    kind = ("unit", "index", "log")[seed % 3]
    if kind == "unit":
        line = rng.choice([m for m in fixtures.dump("clean-small") if m["type"] == "msg"])
        path, position = unit(store, line)
        flip(path, position + rng.randrange(UNIT_SIZE), 1 << rng.randrange(8))
    elif kind == "index":
        path = rng.choice(sorted((store / "index").iterdir()))
        layout = survey(Disk(), config(store)).index_layout
        count = int.from_bytes(path.read_bytes()[36:40], "big") - 1
        number = rng.randrange(2, count + 1)
        flip(path, layout.entry_position(number) + rng.randrange(ENTRY_SIZE), 1 << rng.randrange(8))
    else:
        line = rng.choice(records())
        # totalSize, magic, CRC, queue id, queue offset, physical offset, body length, body
        places = [*range(16), *range(20, 36), *range(84, 88), *range(88, 88 + min(40, line["size"] - 150))]
        if line["sysFlag"] & 0x30:
            places = [*range(16), *range(20, 36)]
        consumable = line["sysFlag"] & 0xC not in (0x4, 0xC)
        at = rng.choice(places if consumable else [*range(8)])
        segment = line["physicalOffset"] // SEGMENT * SEGMENT
        flip(store / "commitlog" / f"{segment:020d}", line["physicalOffset"] % SEGMENT + at, 1 << rng.randrange(8))
    found = look(store)
    assert not found.ok
