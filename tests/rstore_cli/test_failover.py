"""`rstore promote` and `rstore rewind` as commands: the words, JSON and exit codes of a failover."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from engine.config import StoreConfig, parse
from engine.format.message import Message
from engine.store import MessageStore
from tests.engine.opening import assert_sound
from tests.rstore_cli.conftest import Cli
from tests.rstore_cli.test_serve import CONF, Process


def config(root: Path) -> StoreConfig:
    return parse(CONF, StoreConfig(store_path_root_dir=root))


def put(root: Path, count: int, body: bytes) -> None:
    with MessageStore.open(config(root)) as store:
        for i in range(count):
            assert store.put(Message("T", body, i % 2)).ok


def test_a_failover_by_commands(cli: Cli, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    put(old, 30, b"common")
    shutil.copytree(old, new)
    put(old, 12, b"only old")
    conf = tmp_path / "broker-slave.conf"
    conf.write_text("brokerRole=SLAVE\nbrokerId=1\nhaMasterAddress=127.0.0.1:1\n")

    dry = cli("--store", new, "promote", "--conf", conf, "--dry-run")
    assert dry.code == 1, dry.err
    assert "old master  127.0.0.1:1 does not answer" in dry.out
    assert "brokerRole=ASYNC_MASTER (was SLAVE)" in dry.out
    done = cli("--store", new, "--json", "promote", "--conf", conf, "--yes")
    assert (done.code, done.json["promote"]["conf"]["changes"][1]) == (0, {"key": "brokerId", "from": "1", "to": "0"})
    assert conf.read_text().splitlines()[:2] == ["brokerRole=ASYNC_MASTER", "brokerId=0"]
    assert cli("--store", new, "promote", "--conf", conf).code == 0

    master = Process(new)
    try:
        where = master.where["broker"]
        refused = cli("--store", old, "promote", "--master", where, "--yes")
        assert refused.code == 4
        assert "the old master answers" in refused.err
        dry = cli("--store", old, "rewind", "--to", where, "--dry-run")
        assert dry.code == 1, dry.err
        assert "12 messages in 2 queues" in dry.out
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
        sent = cli("send", "--jsonl", tail, "--namesrv", master.where["nameService"])
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
