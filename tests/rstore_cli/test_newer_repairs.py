"""Stores of RocketMQ 5 whose parts repairs keep right: what a real 5.5.0 broker left, damaged, and repaired."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.format.hashing import index_key_hash, tag_index_key
from engine.format.index_file import IndexLayout
from engine.format.property_crc import is_sealed
from engine.format.record import total_size_at
from engine.log.index_file import IndexFile
from engine.log.index_reader import ClosedIndexFile
from tests.rstore_cli.conftest import Cli
from tests.support import newer, stores

NAMES = ("default", "property-crc")
SENT = 20
SIZES = "mappedFileSizeConsumeQueue=2000\nmaxHashSlotNum=200\nmaxIndexNum=800\n"
"""Of files that are all lost; the manifests have them."""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    into = tmp_path_factory.mktemp("rocketmq5")
    return lambda name: into / name if (into / name).exists() else newer.unpack(name, into)


@pytest.fixture
def copied(unpacked: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: stores.copy(unpacked(name), tmp_path / name)


def records(log: Path) -> list[tuple[int, int]]:
    """Position and size of each record of a segment."""
    data, at, places = log.read_bytes(), 0, []
    while (size := total_size_at(data, at)) > 0:
        places.append((at, size))
        at += size
    return places


def log_of(root: Path) -> Path:
    (log,) = (root / "commitlog").iterdir()
    return log


def derived(root: Path) -> dict[str, bytes]:
    """Bytes of queues and index, by their path; an index file is named by when it was made."""
    paths = sorted(path for part in ("consumequeue", "index") for path in (root / part).rglob("*") if path.is_file())
    return {str(p.relative_to(root)) if p.parent.name != "index" else "index": p.read_bytes() for p in paths}


def others(root: Path) -> dict[str, stores.Seen]:
    """What is of RocketMQ 5 alone."""
    ours = ("commitlog", "consumequeue", "index", "checkpoint", "abort", "salvage", "lock", ".")
    return {path: seen for path, seen in stores.snapshot(root).items() if path.split("/")[0] not in ours}


def bodies(cli: Cli, root: Path) -> list[str]:
    """Each once: where a message is lost, its queue offset gives the one beside it."""
    read = [line for q in "01" for line in cli("--store", root, "--json", "get", "T", q, "--count", "99").lines]
    return sorted({line["body"][:6] for line in read})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("abort", [False, True])
def test_a_sound_store_is_not_changed(name: str, abort: bool, copied: Callable[[str], Path], cli: Cli) -> None:
    root = copied(name)
    if abort:
        (root / "abort").touch()
    before = stores.contents(root)
    for words in ("recover --yes", "recover --whole --yes", "reindex --yes"):
        assert cli("--store", root, *words.split()).code == 0, words
    after = stores.contents(root)
    assert {path for path in before if before[path] != after.get(path)} <= ({"abort", "checkpoint"} if abort else set())
    assert (root / "salvage").exists() == abort


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lost", [("consumequeue",), ("index",), ("consumequeue", "index"), ("abort+index",)])
def test_what_is_lost_is_made_as_the_broker_had_made_it(
    name: str, lost: tuple[str, ...], copied: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    """With the keys of tags, which 5.4 and later put: the bytes of queues and index are the broker's (#8007)."""
    root = copied(name)
    wanted, beside = derived(root), others(root)
    conf = tmp_path / "broker.conf"
    conf.write_text(SIZES)
    for part in lost:
        shutil.rmtree(root / part.removeprefix("abort+"))
    if lost[0].startswith("abort+"):
        (root / "abort").touch()
    assert cli("--store", root, "-c", conf, "recover", "--yes").code == 0
    assert derived(root) == wanted
    assert others(root) == beside
    shutil.rmtree(root / "consumequeue")
    assert cli("--store", root, "-c", conf, "reindex", "--yes").code == 0
    assert derived(root) == wanted


@pytest.mark.parametrize("name", NAMES)
def test_a_torn_tail_is_cut_and_comes_back(name: str, copied: Callable[[str], Path], cli: Cli) -> None:
    root = copied(name)
    (at, size) = records(log_of(root))[-1]
    with log_of(root).open("r+b") as file:
        file.seek(at + 100)
        file.write(bytes(size - 100))
    (root / "abort").touch()
    before = stores.contents(root)
    plan = cli("--store", root, "recover", "--dry-run")
    assert plan.code == 1, plan
    (step,) = [line for line in cli("--store", root, "doctor").out.splitlines() if "rstore --store" in line][-1:]
    assert "recover" in step
    assert cli("--store", root, "recover", "--yes").code == 0
    assert bodies(cli, root) == [f"T-{i:04}" for i in range(SENT - 1)]
    assert cli("--store", root, "--json", "check").json["ok"]
    assert cli("--store", root, "undo", "--yes").code == 0
    assert {k: v for k, v in stores.contents(root).items() if not k.startswith("salvage")} == before
    assert cli("--store", root, "recover", "--yes").code == 0


@pytest.mark.parametrize("short", [0, 40])
def test_a_bridge_has_a_property_crc(short: int, copied: Callable[[str], Path], cli: Cli) -> None:
    """Where the broker writes them; also the record before that takes a short range in."""
    root = copied("property-crc")
    log = log_of(root)
    places = records(log)
    at, size = places[7]
    before = log.read_bytes()
    data = bytearray(before)
    if short:  # a range too short for a record: the record before it grows
        (first, length), (_, after) = places[7], places[8]
        whole = length + after
        data[first : first + whole] = before[first : first + length] + bytes(after)
        data[first + length : first + length + after] = b"\xff" * after
    else:
        data[at + 4 : at + size] = b"\xff" * (size - 4)
    log.write_bytes(data)
    assert cli("--store", root, "recover", "--yes").code == 4
    ran = cli("--store", root, "recover", "--bridge", "--yes")
    assert ran.code == 0, ran
    patched = log.read_bytes()
    sealed = [is_sealed(patched[a : a + n]) for a, n in records(log)]
    assert all(sealed)
    assert len(sealed) == SENT
    verified = cli("--store", root, "--json", "verify-crc").json
    assert verified["propertyCrcRecords"] == SENT
    assert len(bodies(cli, root)) == SENT - 1
    assert cli("--store", root, "recover", "--whole", "--dry-run").code == 0
    assert cli("--store", root, "undo", "--yes").code == 0
    assert log.read_bytes() == bytes(data)
    assert cli("--store", root, "recover", "--bridge", "--yes").code == 0


@pytest.mark.parametrize("name", NAMES)
def test_the_log_is_truncated_and_its_queues_with_it(name: str, copied: Callable[[str], Path], cli: Cli) -> None:
    root = copied(name)
    at, _ = records(log_of(root))[12]
    beside = others(root)
    assert cli("--store", root, "truncate", "--to-offset", str(at), "--yes").code in (0, 4)
    ran = cli("--store", root, "truncate", "--to-offset", str(at), "--yes", "--lose-unread")
    assert ran.code in (0, 2), ran
    assert bodies(cli, root) == [f"T-{i:04}" for i in range(12)]
    assert others(root) == beside


@pytest.mark.parametrize("words", ["recover", "truncate --to-offset", "recover --cut", "recover --bridge"])
def test_an_old_log_is_not_cut_where_property_crcs_are_demanded(
    words: str, copied: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    """With forceVerifyPropCRC a broker's start ends the log at the first record without one (#7480): no repair leaves
    a log that the broker then cuts, and each works once the setting is off.
    """
    root = copied("default")
    (root / "abort").touch()
    conf = tmp_path / "broker.conf"
    conf.write_text("enabledAppendPropCRC=true\nforceVerifyPropCRC=true\n")
    options = words.split()
    if options[0] == "truncate":
        options += [str(records(log_of(root))[12][0])]
    before = stores.snapshot(root)
    ran = cli("--store", root, "-c", conf, *options, "--yes")
    assert ran.code == 4
    assert "no property CRC, which forceVerifyPropCRC=true demands" in ran.err
    assert "Next: set forceVerifyPropCRC=false" in ran.err
    assert stores.snapshot(root) == before
    conf.write_text("enabledAppendPropCRC=true\nforceVerifyPropCRC=false\n")
    assert cli("--store", root, "-c", conf, *options, "--yes").code == 0
    assert len(bodies(cli, root)) == (12 if options[0] == "truncate" else SENT)


def test_a_store_whose_broker_demands_property_crcs_is_repaired(
    copied: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    """Where each record has its own, its broker ends the log at none."""
    root = copied("property-crc")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{SIZES}enabledAppendPropCRC=true\nforceVerifyPropCRC=true\n")
    wanted = derived(root)
    at, size = records(log_of(root))[-1]
    with log_of(root).open("r+b") as file:
        file.seek(at + 100)
        file.write(bytes(size - 100))
    (root / "abort").touch()
    shutil.rmtree(root / "index")
    rstore = ("--store", root, "-c", conf)
    assert cli(*rstore, "recover", "--yes").code == 0
    assert bodies(cli, root) == [f"T-{i:04}" for i in range(SENT - 1)]
    shutil.rmtree(root / "consumequeue")
    assert cli(*rstore, "reindex", "--yes").code == 0
    assert derived(root).keys() == wanted.keys()
    to = str(records(log_of(root))[12][0])
    assert cli(*rstore, "truncate", "--to-offset", to, "--yes").code == 0
    assert len(bodies(cli, root)) == 12
    assert cli(*rstore, "seal").code == 0
    assert cli(*rstore, "undo", "--yes").code == 0
    assert len(bodies(cli, root)) == SENT - 1


@pytest.mark.leaves("record-crc")
def test_a_wrong_property_crc_is_none_where_all_are_demanded(
    copied: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    """The header of a sound record is changed: its broker would end the log there."""
    root = copied("property-crc")
    conf = tmp_path / "broker.conf"
    conf.write_text("enabledAppendPropCRC=true\nforceVerifyPropCRC=true\n")
    at, _ = records(log_of(root))[5]
    with log_of(root).open("r+b") as file:
        file.seek(at + 16)  # flag
        file.write(b"\0\0\0\1")
    (root / "abort").touch()
    ran = cli("--store", root, "-c", conf, "--json", "recover", "--yes")
    assert (ran.code, ran.json["error"]["code"], ran.json["error"]["offset"]) == (4, "cannot-repair", at)
    assert "property CRC mismatch" in ran.json["error"]["message"]
    conf.write_text("enabledAppendPropCRC=true\n")
    assert cli("--store", root, "-c", conf, "recover", "--yes").code == 0
    assert len(bodies(cli, root)) == SENT


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_last_queue_file_is_removed(name: str, copied: Callable[[str], Path], cli: Cli) -> None:
    """A 5.x broker does not start on it, or deletes it as it loads (#9728)."""
    root = copied(name)
    (root / "consumequeue" / "T" / "0" / f"{2000:020d}").touch()
    assert "file-stray" in {f["code"] for f in cli("--store", root, "--json", "check").json["findings"]}
    assert cli("--store", root, "recover", "--yes").code == 0
    assert not (root / "consumequeue" / "T" / "0" / f"{2000:020d}").exists()
    assert len(bodies(cli, root)) == SENT


def test_lost_topics_are_rebuilt(copied: Callable[[str], Path], cli: Cli) -> None:
    """topics.json lost, with its copy (#9826, #9328)."""
    root = copied("default")
    for path in (root / "config").glob("topics.json*"):
        path.unlink()
    assert cli("--store", root, "rebuild-config", "--yes").code == 0
    table = json.loads((root / "config" / "topics.json").read_text())
    assert table["topicConfigTable"]["T"]["readQueueNums"] == 2


@pytest.mark.parametrize("name", ["batch", "killed", "timer", "controller"])
def test_lost_topics_of_batch_queues_timers_and_controllers_are_rebuilt(
    name: str, copied: Callable[[str], Path], cli: Cli
) -> None:
    """topics.json lost (#9826, #9328): over batch queues no 5.x broker starts without the attribute (#5077)."""
    root = copied(name)
    path = root / "config" / "topics.json"
    had = json.loads(path.read_text())["topicConfigTable"]
    for one in (root / "config").glob("topics.json*"):
        one.unlink()
    batches = name in ("batch", "killed")
    for release in ("5.3.3", "5.5.0"):
        assert cli("--store", root, "plan-start", "--as", release, "--json").json["outcome"] == (
            "refuses" if batches else "opens"
        )
    others = {p.name: p.read_bytes() for p in (root / "config").iterdir() if p.name.startswith("timer")}
    assert cli("--store", root, "rebuild-config", "--yes").code == 0
    table = json.loads(path.read_text())["topicConfigTable"]
    sent = newer.manifest(name)["messages"]
    assert {topic: table[topic]["readQueueNums"] for topic in sent if topic != "Late"} == {
        topic: had[topic]["readQueueNums"] for topic in sent if topic != "Late"
    }
    assert {topic for topic, one in table.items() if "attributes" in one} == ({"B"} if batches else set())
    assert all(table[topic]["attributes"] == {"queue.type": "BatchCQ"} for topic in ("B",) if batches)
    assert {p.name: p.read_bytes() for p in (root / "config").iterdir() if p.name.startswith("timer")} == others
    for release in ("5.3.3", "5.5.0"):
        assert cli("--store", root, "plan-start", "--as", release, "--json").json["outcome"] == "opens"
    assert cli("--store", root, "undo", "--yes").code == 0
    assert not path.exists()
    assert cli("--store", root, "rebuild-config", "--yes").code == 0
    if name == "killed":
        assert cli("--store", root, "recover", "--yes").code == 0


def test_an_offset_that_is_set_leaves_what_5_adds(copied: Callable[[str], Path], cli: Cli) -> None:
    root = copied("default")
    path = root / "config" / "consumerOffset.json"
    before = json.loads(path.read_text())
    assert cli("--store", root, "offsets", "set", "g", "T", "0", "3", "--yes").code == 0
    after = json.loads(re.sub(r"(\d+):", r'"\1":', path.read_text()))  # fastjson writes queue ids without quotes
    assert after["offsetTable"] == {"T@g": {"0": 3}}
    assert after.keys() == before.keys()
    assert after["pullOffsetTable"] == before["pullOffsetTable"]
    assert after["dataVersion"].keys() == before["dataVersion"].keys()


def test_segments_are_sealed(copied: Callable[[str], Path], cli: Cli) -> None:
    root = copied("default")
    assert cli("--store", root, "seal").code == 0


@pytest.mark.parametrize("since", [0, 10, SENT])
def test_records_of_a_release_without_keys_by_tag_stay_without(
    since: int, copied: Callable[[str], Path], cli: Cli
) -> None:
    """As of a store whose broker was upgraded to 5.4 at record `since`, or went back (none has them)."""
    root = copied("default")
    (index,) = (root / "index").iterdir()
    places = [at for at, _ in records(log_of(root))]
    layout = IndexLayout(200, 800)
    with ClosedIndexFile(Disk(), str(index), layout) as file:
        rows, header = file.entries(), file.header
    keep = [i for i, row in enumerate(rows.tolist()) if (i + 1) % 3 or row[1] >= (places[since:] or [1 << 40])[0]]
    index.unlink()
    stored = [header.begin_timestamp + 1000 * int(row["time_diff"]) for row in rows[keep]]
    made = IndexFile.create(Disk(), str(index), layout)
    made.put_few(rows["key_hash"][keep].tolist(), rows["physical_offset"][keep].tolist(), stored)
    made.flush()
    made.shutdown()
    with index.open("r+b") as raw:  # the header's times are whole ones
        raw.write(header.encode()[:16])
    assert cli("--store", root, "--json", "check").json["ok"]
    before = index.read_bytes()
    for words in ("recover --yes", "recover --whole --yes"):
        assert cli("--store", root, *words.split()).code == 0, words
        assert index.read_bytes() == before
    for path in (root / "index").iterdir():
        path.unlink()
    (root / "index" / index.name).write_bytes(before)
    assert cli("--store", root, "reindex", "--yes").code == 0
    with ClosedIndexFile(Disk(), str(next((root / "index").iterdir())), layout) as file:
        assert file.entry_count == (2 if since == SENT else 3) * SENT  # as the last records have them


@pytest.mark.parametrize("name", [*NAMES, "timer"])
def test_a_put_is_written_as_its_broker_writes(name: str, copied: Callable[[str], Path], cli: Cli) -> None:
    """With a property CRC where records have one, and an index entry by tag; nothing else of RocketMQ 5 is touched."""
    root = copied(name)
    before = others(root)
    put = cli("--store", root, "--json", "put", "T", "--body", "new", "--property", "TAGS=red", "--property", "KEYS=k9")
    assert put.code == 0
    place = put.json["physicalOffset"]
    log = log_of(root)
    data, size = log.read_bytes(), dict(records(log))[place]
    assert is_sealed(data[place : place + size]) == (name == "property-crc")
    (shown,) = cli("--store", root, "--json", "query", "T", "k9").lines
    assert (shown["body"], shown["physicalOffset"]) == ("new", place)
    (index,) = (root / "index").iterdir()
    with ClosedIndexFile(Disk(), str(index), IndexLayout(200, 800)) as file:
        entries = file.entries(1, file.entry_count)
    hashes = {hash_ for at, hash_ in zip(entries["physical_offset"], entries["key_hash"], strict=True) if at == place}
    assert hashes == {index_key_hash("T#k9"), index_key_hash(tag_index_key("T", "red"))}
    assert others(root) == before
    assert cli("--store", root, "recover", "--dry-run").code == 0


@pytest.mark.parametrize("into", ["itself", "a new store"])
def test_what_is_replayed_has_the_property_crc_of_its_own_record(
    into: str, copied: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    root = copied("property-crc")
    last = records(log_of(root))[-1][0]
    assert cli("--store", root, "truncate", "--to-offset", str(last), "--yes").code == 0
    target = root if into == "itself" else tmp_path / "new"
    options = () if target == root else ("--into", str(target))
    assert cli("--store", root, "salvage", "replay", "--yes", *options).code == 0
    lines = cli("--store", target, "--json", "dump", "commitlog").lines
    (line,) = (one for one in lines if "RSTORE_REPLAYED" in str(one))
    assert ("__CRC32#" in line["properties"]) == (target == root)
    data = log_of(target).read_bytes()
    place, size = line["physicalOffset"], line["storeSize"]
    assert is_sealed(data[place : place + size]) == (target == root)
