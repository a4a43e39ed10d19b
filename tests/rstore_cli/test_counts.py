"""Messages and records are two counts, and every command gives the same of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.files.disk import Disk
from engine.format import sysflag
from engine.format.batch import BatchItem
from engine.format.message import Message
from engine.log import scan
from engine.repair.recover.apply import apply
from engine.repair.recover.recover import plan_recover
from engine.store import MessageStore
from tests.engine.repair.test_rules import damage, put, settings
from tests.rstore_cli.conftest import Cli

PREPARED, ROLLED_BACK = 3, 2


@pytest.fixture
def mixed(tmp_path: Path) -> tuple[Path, int]:
    """Messages, batches, prepared and rolled back records, inert ones over three lost messages; how many messages."""
    root = tmp_path / "store"
    offsets = put(root, 60)
    with MessageStore.open(settings(root)) as store:
        kinds = [sysflag.TRANSACTION_PREPARED] * PREPARED + [sysflag.TRANSACTION_ROLLBACK] * ROLLED_BACK
        for i, kind in enumerate([*kinds, sysflag.TRANSACTION_COMMIT]):
            assert store.put(Message("T", b"half", i % 2, sys_flag=kind)).ok
        assert store.put_batch(Message("T", b""), [BatchItem(b"%d" % i) for i in range(7)]).ok
    last = put(root, 4, first=0, topic="Last", queues=1)[-1]
    put(root, 20, topic="U")
    for offset in (offsets[5], offsets[30], last):
        damage(root, offset + 95, b"\xff")
    apply(Disk(), plan_recover(Disk(), settings(root), bridge=True))
    return root, 60 + 1 + 7 + 4 + 20 - 3


@pytest.mark.parametrize("kernels", [False, True])
def test_all_commands_count_the_same(
    kernels: bool, mixed: tuple[Path, int], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, messages = mixed
    if kernels:
        pytest.importorskip("numba")
        monkeypatch.setattr(scan, "LONG", 1 << 10)
    records = messages + PREPARED + ROLLED_BACK + 3
    check = cli("--store", root, "check", "--json").json["counts"]
    verified = cli("--store", root, "verify-crc", "--json").json
    status = cli("--store", root, "status", "--json").json
    lines = cli("--store", root, "dump", "commitlog", "--json").lines
    dumped = [line for line in lines if line["kind"] == "message"]
    told = sum(line["sysFlag"] & sysflag.TRANSACTION_PREPARED == 0 for line in dumped)
    assert (check["messages"], check["records"]) == (messages, records)
    assert (verified["messages"], verified["records"]) == (messages, records)
    assert (told, len(dumped)) == (messages, records)
    assert status["messages"] == sum(topic["messages"] for topic in status["topics"]) == messages
    words = f"{messages} messages in {records} "
    assert words in cli("--store", root, "check").out
    assert words in cli("--store", root, "verify-crc").out
    assert f", {messages} messages" in cli("--store", root, "status").out
