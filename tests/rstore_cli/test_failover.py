"""`rstore promote` and `rstore rewind` as commands: the words, JSON and exit codes of a failover."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from engine.config import StoreConfig, parse
from engine.format.message import Message
from engine.store import MessageStore
from tests.engine.opening import assert_sound
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_serve import CONF, Process
from tests.support import stores
from tests.support.config import write_config


def config(root: Path) -> StoreConfig:
    return parse(CONF, StoreConfig(store_path_root_dir=root))


def put(root: Path, count: int, body: bytes) -> None:
    with MessageStore.open(config(root)) as store:
        for i in range(count):
            assert store.put(Message("T", body, i % 2)).ok


@pytest.mark.leaves
def test_a_configuration_in_the_store_that_is_a_link_is_not_changed(cli: Cli, tmp_path: Path) -> None:
    """Who names a file elsewhere has named what it leads to; in a store somebody else may have put the link."""
    store, theirs = tmp_path / "store", tmp_path / "theirs" / "broker.conf"
    put(store, 3, b"x")
    (store / "abort").touch()
    theirs.parent.mkdir()
    theirs.write_text("brokerRole=SLAVE\nbrokerId=1\n")
    (store / "broker.conf").symlink_to(theirs)
    before = stores.snapshot(store)
    for more in ("--dry-run", "--yes"):
        refused = cli("--store", store, "promote", "--conf", store / "broker.conf", more)
        assert refused.code == 4, refused
        assert f"which leads to {theirs} at broker.conf" in refused.error_line
    assert {name: one for name, one in stores.snapshot(store).items() if name not in (".", "lock")} == {
        name: one for name, one in before.items() if name not in (".", "lock")
    }
    assert sorted(path.name for path in theirs.parent.iterdir()) == ["broker.conf"]
    (tmp_path / "link.conf").symlink_to(theirs)
    assert cli("--store", store, "promote", "--conf", tmp_path / "link.conf", "--yes").code == 0
    assert theirs.read_text().startswith("brokerRole=ASYNC_MASTER")
    assert (tmp_path / "link.conf").is_symlink()


@pytest.mark.leaves
def test_a_table_that_can_not_be_read_is_told_once(cli: Cli, tmp_path: Path) -> None:
    store = tmp_path / "store"
    put(store, 3, b"x")
    (store / "config" / "consumerOffset.json").unlink(missing_ok=True)
    (store / "config" / "consumerOffset.json").mkdir(parents=True)
    (line,) = cli("--store", store, "promote", "--dry-run").err.splitlines()
    assert line.endswith("its offsets stay as they are")


def test_a_failover_by_commands(cli: Cli, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    put(old, 30, b"common")
    shutil.copytree(old, new)
    put(old, 12, b"only old")
    conf = tmp_path / "broker-slave.conf"
    conf.write_text("brokerRole=SLAVE\nbrokerId=1\nhaMasterAddress=127.0.0.1:1\n")

    write_config(new)
    table = new / "config" / "consumerOffset.json"
    written = time.time() - 47.5 * 60
    os.utime(table, (written, written))
    dry = cli("--store", new, "promote", "--conf", conf, "--dry-run")
    assert ", 47 min 3" in dry.out
    assert dry.code == 1, dry.err
    assert "127.0.0.1:1 does not answer" in dry.out
    assert "brokerRole=ASYNC_MASTER (was SLAVE)" in dry.out
    done = cli("--store", new, "--json", "promote", "--conf", conf, "--yes")
    assert (done.code, done.json["promote"]["conf"]["changes"][1]) == (0, {"key": "brokerId", "from": "1", "to": "0"})
    assert conf.read_text().splitlines()[:2] == ["brokerRole=ASYNC_MASTER", "brokerId=0"]
    assert cli("--store", new, "promote", "--conf", conf).code == 0

    shutil.copytree(new, tmp_path / "copy")
    master = Process(new)
    try:
        where = master.where["broker"]
        refused = cli("--store", old, "promote", "--master", where, "--yes")
        assert refused.code == 4
        assert "the old master answers" in refused.err
        even = cli("--store", new.parent / "copy", "promote", "--master", where, "--dry-run")
        assert f"{where} ANSWERS; its log has nothing that this one lacks" in even.out
        dry = cli("--store", old, "rewind", "--to", where, "--dry-run")
        assert dry.code == 1, dry.err
        assert "12 messages in 2 queues" in dry.out
        assert "To send the removed messages to the new master, once the rewind is done:" in dry.out
        done = cli("--store", old, "--json", "rewind", "--to", where, "--yes")
        assert done.code == 0, done.err
        assert (done.json["rewind"]["tail"]["messages"], done.json["rewind"]["commonEnd"]) == (
            12,
            done.json["maxOffset"],
        )
        export, send = done.json["rewind"]["messagesBack"]
        repair = Path(done.json["salvage"]).name
        assert export == f"rstore --store {old} salvage export {repair} --output tail.jsonl"
        assert send == "rstore send --jsonl tail.jsonl --namesrv HOST:PORT"
        tail = tmp_path / "tail.jsonl"
        assert cli("--store", old, "salvage", "export", repair, "--output", tail).code == 0
        assert {json.loads(line)["body"] for line in tail.read_text().splitlines()} == {"only old"}
        sent = cli("send", "--jsonl", tail, "--namesrv", master.where["nameService"], "--timeout", "60")
        assert sent.code == 0, sent.err
        sizes = tmp_path / "broker.conf"  # the daemon's
        followed = cli("--store", old, "-c", sizes, "replicate", "--from", where, "--until-caught-up")
        assert followed.code == 0, followed.err
        again = cli("--store", old, "rewind", "--to", where)
        assert again.code == 0
        assert "the master has all of this log" in again.out
        assert cli("--store", old, "rewind", "--to", "127.0.0.1:1").code == 5
        assert cli("--store", old, "rewind", "--to", "nowhere").code == 2
    finally:
        assert master.stop() == 0
    for root in (old, new):
        assert_sound(config(root))
    with MessageStore.open(config(old)) as store:
        assert sum(store.max_offset("T", queue_id) for queue_id in range(8)) == 42
