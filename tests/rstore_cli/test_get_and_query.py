"""get and query: against what Apache reads and finds, past damage, by ids and keys."""

from __future__ import annotations

import base64
import errno
import json
import shlex
import zlib
from pathlib import Path

import pytest

from engine import read_store
from engine.config import StoreConfig
from engine.files.faults import FaultyDisk
from engine.files.operations import Doing, Operation
from engine.format.message import Message
from engine.log.results import QueryResult
from engine.read_store import ReadStore
from engine.store import MessageStore
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_messages_in_and_out import Store
from tests.support import fixtures, golden

# --- get -------------------------------------------------------------------------------------------------------------


def test_get_is_what_apache_reads(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    messages = [line for line in fixtures.dump("clean-small") if line["type"] == "msg"]
    topic, queue_id = messages[0]["cqTopic"], messages[0]["cqQueueId"]
    own = [m for m in messages if (m["cqTopic"], m["cqQueueId"]) == (topic, queue_id)]
    got = cli("--store", store, "get", topic, str(queue_id), "--count", "10000", "--json").lines
    assert [m["msgId"] for m in got] == [m["msgId"] for m in own]
    some = cli("--store", store, "get", topic, str(queue_id), "5", "--count", "2", "--json")
    assert some.lines == got[5:7]
    (more,) = some.err.splitlines()
    assert cli(*shlex.split(more.removeprefix("more: rstore "))).lines == got[7:9]
    at = got[6]["storeTimestamp"]
    first = next(m for m in got if m["storeTimestamp"] >= at)
    assert cli("--store", store, "get", topic, str(queue_id), "--at", str(at), "-n", "1", "--json").lines == [first]


def test_where_nothing_is(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    topic = cli("--store", store, "status", "--json").json["topics"][0]["topic"]
    ran = cli("--store", store, "get", topic, "0", "1000000", "--json")
    assert (ran.code, ran.out) == (0, "")
    assert "holds offsets 0 to" in ran.err
    assert cli("--store", store, "get", topic + "x", "0").code == 2
    assert topic in cli("--store", store, "get", topic + "x", "0").error_line
    assert cli("--store", store, "get", "--physical-offset", "1000000000000").code == 2
    assert cli("--store", store, "get", "--physical-offset", "1").code == 2
    assert cli("--store", store, "get", "--msg-id", "xyz").code == 1
    assert cli("--store", store, "get", topic, "0", "0", "--at", "now").code == 2


@pytest.mark.leaves("log-damage")
def test_a_body_that_is_not_its_crc_s(damaged: Path, cli: Cli) -> None:
    (bad,) = cli("--store", damaged, "verify-crc", "--json").json["damage"]
    ran = cli("--store", damaged, "get", "--physical-offset", str(bad["physicalOffset"]), "--json")
    assert ran.code == 1
    assert len(ran.lines) == 1
    assert "body CRC mismatch" in ran.err


@pytest.mark.leaves("log-damage")
def test_a_queue_goes_on_behind_bytes_that_are_no_record(fixture_copy: Store, cli: Cli) -> None:
    store = fixture_copy("clean-small")
    messages = [line for line in fixtures.dump("clean-small") if line["type"] == "msg"]
    first = next(m for m in messages if m["cqPhyOffset"] < 131072 and m["cqOffset"] == 0)
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(first["cqPhyOffset"])
        file.write(bytes(first["cqSize"]))
    queue = (first["cqTopic"], str(first["cqQueueId"]))
    own = [m for m in messages if (m["cqTopic"], str(m["cqQueueId"])) == queue]
    ran = cli("--store", store, "get", *queue, "--count", "1000", "--json")
    assert ran.code == 1
    assert [m["msgId"] for m in ran.lines] == [m["msgId"] for m in own[1:]]
    assert "can't be read" in ran.err


def test_compressed_bodies(new_store: Path, cli: Cli, tmp_path: Path) -> None:
    packed = zlib.compress(b"plain" * 100)
    line = {"topic": "T", "sysFlag": 1, "bodyBase64": base64.b64encode(packed).decode()}
    (tmp_path / "lines").write_text(json.dumps(line) + "\n")
    assert cli("--store", new_store, "put", "--jsonl", tmp_path / "lines").code == 0
    (stored,) = cli("--store", new_store, "get", "T", "0", "--json").lines
    assert base64.b64decode(stored["bodyBase64"]) == packed
    (plain,) = cli("--store", new_store, "get", "T", "0", "--decompress", "--json").lines
    assert (plain["body"], plain["decompressedLength"]) == ("plain" * 100, 500)
    (tmp_path / "lines").write_text(json.dumps(plain) + "\n")
    assert cli("--store", new_store, "put", "--jsonl", tmp_path / "lines").code == 0
    (again,) = cli("--store", new_store, "get", "T", "0", "1", "--json").lines
    assert (again["body"], again["sysFlag"]) == ("plain" * 100, 0)


CLIENTS_ID = "7F0000015BD418B4AAC2914F53A10000"


def test_a_message_by_its_client_s_id_with_and_without_a_topic(new_store: Path, cli: Cli) -> None:
    def put(topic: str, *args: str) -> str:
        unique = ("--property", f"UNIQ_KEY={CLIENTS_ID}")
        found: str = cli("--store", new_store, "put", topic, *unique, *args, "--json").json["msgId"]
        return found

    first = put("Orders", "--body", "one")
    assert cli("--store", new_store, "put", "Orders", "--keys", CLIENTS_ID, "--body", "another's key").code == 0
    second = put("%RETRY%billing", "--body", "two")
    for word in (CLIENTS_ID, CLIENTS_ID.lower()):
        both = cli("--store", new_store, "get", "--msg-id", word, "--json")
        assert (both.code, [message["msgId"] for message in both.lines]) == (0, [first, second])
    (one,) = cli("--store", new_store, "get", "Orders", "--msg-id", CLIENTS_ID, "--json").lines
    assert one["body"] == "one"
    assert cli("--store", new_store, "get", "Orders", "--msg-id", first, "--json").lines == [one]
    assert "belongs to topic Orders" in cli("--store", new_store, "get", "T", "--msg-id", first).error_line
    none = cli("--store", new_store, "get", "--msg-id", CLIENTS_ID[:-1] + "1")
    assert none.code == 1
    assert "no message with the id" in none.error_line
    assert "not in the index, which goes up to" in none.error_line
    assert cli("--store", new_store, "get", "Orders", "0", "--msg-id", first).code == 2


def test_an_id_of_the_client_s_own_making(new_store: Path, cli: Cli) -> None:
    cli("--store", new_store, "put", "T", "--property", "UNIQ_KEY=order 4711", "--body", "x")
    (found,) = cli("--store", new_store, "get", "--msg-id", "order 4711", "--json").lines
    assert found["body"] == "x"


@pytest.mark.parametrize("millis", [1 << 60, (1 << 63) - 1, -(1 << 63)])
def test_a_damaged_time_in_the_index_ends_no_search(millis: int, new_store: Path, cli: Cli) -> None:
    """The header of an index file is believed by no one: the time up to which it goes is told as what it is."""
    assert cli("--store", new_store, "put", "Orders", "--keys", "k", "--body", "one").code == 0
    (index,) = (new_store / "index").iterdir()
    with index.open("r+b") as file:
        file.seek(8)  # endTimestamp
        file.write(millis.to_bytes(8, "big", signed=True))
    for asked in (("get", "--msg-id", CLIENTS_ID), ("query", "Orders", "another")):
        none = cli("--store", new_store, *asked)
        assert none.code == 1, none.err
        assert "fault of rstore" not in none.err
        says = f"which goes up to {millis} ms" if millis > 0 else "whose times are damaged"
        assert f"not in the index, {says}" in none.err.replace("\n", " ")
    assert cli("--store", new_store, "check").code == 1
    assert cli("--store", new_store, "reindex", "--yes").code == 0


def of_several_index_files(store: Path) -> Path:
    """A store of forty messages with a key and a client's id each, in index files of thirty entries."""
    config = StoreConfig(store_path_root_dir=store).with_changes(
        mapped_file_size_commit_log=1 << 16, max_hash_slot_num=20, max_index_num=30
    )
    with MessageStore.open(config) as writer:
        for i in range(40):
            assert writer.put(Message("T", b"x", properties={"KEYS": f"k{i}", "UNIQ_KEY": f"u{i}"})).ok
        assert writer.wait_dispatched()
    return store


@pytest.mark.parametrize("millis", [1 << 60, (1 << 63) - 1, -(1 << 63), -1])
@pytest.mark.parametrize("field", [0, 8], ids=["beginTimestamp", "endTimestamp"])
def test_a_damaged_time_in_the_index_hides_no_message(field: int, millis: int, tmp_path: Path, cli: Cli) -> None:
    """Who asks for no times goes by none: neither in that file nor in the older one."""
    store = of_several_index_files(tmp_path / "s")
    older, newer = sorted((store / "index").iterdir())[-2:]
    for path in (older, newer):
        true = path.read_bytes()
        path.write_bytes(true[:field] + millis.to_bytes(8, "big", signed=True) + true[field + 8 :])
        for i in (0, 20, 39):
            for asked in (("query", "T", f"k{i}"), ("get", "--msg-id", f"u{i}")):
                found = cli("--store", store, *asked, "--json")
                assert (found.code, [line["queueOffset"] for line in found.lines]) == (0, [i]), (path.name, asked)
        path.write_bytes(true)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 1 << 20, (1 << 31) - 1, -1, -(1 << 31)])
def test_a_damaged_count_in_the_index_hides_no_message(count: int, tmp_path: Path, cli: Cli) -> None:
    """Slots and links name the entries; the header's count of them is held against both by check, not by who asks."""
    store = of_several_index_files(tmp_path / "s")
    for path in sorted((store / "index").iterdir()):
        true = path.read_bytes()
        path.write_bytes(true[:36] + count.to_bytes(4, "big", signed=True) + true[40:])
        for i in (0, 20, 39):
            for asked in (("query", "T", f"k{i}"), ("get", "--msg-id", f"u{i}")):
                found = cli("--store", store, *asked, "--json")
                assert (found.code, [line["queueOffset"] for line in found.lines]) == (0, [i]), (path.name, asked)
        path.write_bytes(true)


@pytest.mark.parametrize("last_file", [True, False])
@pytest.mark.parametrize("tags", [(), ("--tags", "A")])
def test_a_page_that_cannot_be_read_costs_its_messages(
    tags: tuple[str, ...], last_file: bool, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies in front of it is shown, and the command that is printed shows what follows."""
    store = tmp_path / "s"
    config = StoreConfig(store_path_root_dir=store).with_changes(mapped_file_size_commit_log=1 << 16)
    with MessageStore.open(config) as writer:
        put = [writer.put(Message("T", b"x" * 1000, properties={"TAGS": "AB"[i % 2]})) for i in range(100)]
        assert writer.wait_dispatched()
    places = [one.append.physical_offset for one in put if one.append is not None]
    bad = 80 if last_file else 20
    path = sorted((store / "commitlog").iterdir())[places[bad] >> 16]
    page = range(places[bad] % (1 << 16) + 10, places[bad] % (1 << 16) + 20)

    def unreadable(doing: Doing) -> bool:
        start = doing.offset or 0
        return (
            doing.operation is Operation.READ
            and doing.path == str(path)
            and (start < page.stop and start + (doing.length or 1) > page.start)
        )

    def failing(mapped: bool) -> FaultyDisk:
        disk = FaultyDisk(None, mapped=mapped)
        disk.fail_when(unreadable, errno.EIO)
        return disk

    monkeypatch.setattr(read_store, "Disk", failing)
    step = 2 if tags else 1
    ran = cli("--store", store, "get", "T", 0, bad - 6, *tags, "--json")
    assert (ran.code, [line["queueOffset"] for line in ran.lines[:-1]]) == (5, list(range(bad - 6, bad, step)))
    error = ran.lines[-1]["error"]
    assert "input/output error" in error["message"]
    words = shlex.split(error["next"]["command"])
    assert words[:1] == ["rstore"]
    ran = cli(*words[1:])
    assert (ran.code, [line["queueOffset"] for line in ran.lines]) == (0, list(range(bad + step, 100, step))[:32])
    monkeypatch.undo()


# --- query -----------------------------------------------------------------------------------------------------------


def test_query_is_what_apache_finds(fixture_store: Store, cli: Cli) -> None:
    store = fixture_store("clean-small")
    messages = [line for line in fixtures.dump("clean-small") if line["type"] == "msg"]
    some = [
        m for m in cli("--store", store, "dump", "commitlog", "--json").lines if m.get("properties", {}).get("KEYS")
    ]
    key, topic = some[3]["properties"]["KEYS"].split()[0], some[3]["topic"]
    found = cli("--store", store, "query", topic, key, "--json").lines
    wanted = [m for m in some if m["topic"] == topic and key in m["properties"]["KEYS"].split(" ")]
    assert [m["msgId"] for m in found] == [m["msgId"] for m in wanted]
    assert {m["msgId"] for m in found} <= {m["msgId"] for m in messages} | {m["msgId"] for m in wanted}
    newest = cli("--store", store, "query", topic, key, "--max", "1", "--json").lines
    assert newest == found[-1:]
    late = str(found[-1]["storeTimestamp"] + 5000)
    none = cli("--store", store, "query", topic, key, "--begin", late, "--json")
    assert (none.code, none.out) == (1, "")
    assert "no message" in none.err
    text = cli("--store", store, "query", topic, key)
    assert text.code == 0
    assert found[0]["msgId"] in text.out


@pytest.mark.parametrize("times", [(), ("--begin", "2024-01-01"), ("--begin", "2024-01-01", "--end", "2099-01-01")])
def test_what_a_broker_indexes_while_a_query_runs_is_found(
    times: tuple[str, ...], tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query looks twice where it finds nothing: a live writer puts the key into the index between the two."""
    look = ReadStore.query
    config = StoreConfig(store_path_root_dir=tmp_path / "s").with_changes(**golden.SMALL_SETTINGS)
    with MessageStore.open(config) as writer:

        def put(key: str) -> None:
            assert writer.put(Message("T", b"body of " + key.encode(), properties={"KEYS": key})).ok
            assert writer.wait_dispatched()

        def query(store: ReadStore, topic: str, key: str, *args: int) -> QueryResult:
            found = look(store, topic, key, *args)
            if not found.messages:
                put(key)
            return found

        put("first")
        monkeypatch.setattr(ReadStore, "query", query)
        ran = cli("--store", tmp_path / "s", "query", "T", "k1", *times)
        assert (ran.code, ran.err) == (0, "")
        assert "body of k1" in ran.out
