"""DLedger stores against Apache: plain stores made of them go on in a plain broker; and what DLedger recovers of
damaged ones, of which we must not read less."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.backup.restore.dledger import migrate
from engine.client.connection import RemotingClient
from engine.config import of_store
from engine.files.disk import Disk
from engine.format import fastjson, message
from engine.format.dledger_entry import HEAD_SIZE, decode
from engine.inspect.check.check import check
from engine.inspect.dump.dledger import BARE, ENTRY, dump_entries
from engine.inspect.store.survey import survey
from engine.wire.codes import RequestCode, ResponseCode
from tests.compat import apache, generate5, generate_dledger, real_broker, toolchain
from tests.compat.generate5 import Topic
from tests.support import dledger, stores
from tests.support.wide import WIDE

pytestmark = [pytest.mark.interop, pytest.mark.leaves]
SIZE = 16_384
CASES = 400 if WIDE else 60


# --- a plain store of it goes on --------------------------------------------------------------------------------------


@pytest.fixture(autouse=True, scope="module")
def _tools() -> None:
    try:
        toolchain.apache_broker()
        toolchain.apache_broker5("5.3.3")
        apache.harness()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))


def sent(store: Path) -> dict[tuple[str, int], list[tuple[int, bytes, str]]]:
    """Queue offset, body and properties of each message of T and Other, by queue: as our reader has them."""
    found: dict[tuple[str, int], list[tuple[int, bytes, str]]] = {}
    for row in _messages(store):
        if row.topic in ("T", "Other"):
            one = (row.queue_offset, bytes(row.body), row.properties_raw.decode())
            found.setdefault((row.topic, row.queue_id), []).append(one)
    return found


def _messages(store: Path) -> Iterator[Any]:
    from engine.inspect.dump.dump import dump_log

    return (row.message for row in dump_log(Disk(), of_store(store)) if row.message is not None)


async def pulled(address: str, topic: str, queue_id: int) -> list[tuple[int, bytes, str]]:
    """The same as a consumer of a running broker gets it, from the queue's begin on."""
    found: list[tuple[int, bytes, str]] = []
    async with await RemotingClient.connect(address) as client:
        while True:
            given = {
                "consumerGroup": "G", "topic": topic, "queueId": str(queue_id), "queueOffset": str(len(found)),
                "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
                "subscription": "*", "subVersion": "0",
            }  # fmt: skip
            answer = await client.ask(RequestCode.PULL_MESSAGE, given, timeout_s=20)
            if answer.code != ResponseCode.SUCCESS:
                return found
            at, body = 0, bytes(answer.body)
            while at < len(body):
                size = int.from_bytes(body[at : at + 4], "big")
                one = message.decode(body[at : at + size])
                found.append((one.queue_offset, bytes(one.body), one.properties_raw.decode()))
                at += size


async def ask(address: str, code: int, name: str, **given: object) -> int:
    async with await RemotingClient.connect(address) as client:
        answer = await client.ask(code, {key: str(value) for key, value in given.items()}, timeout_s=20)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return int(answer.fields[name])


@pytest.mark.parametrize(("name", "release"), [("mixed4", "4.9"), ("killed5", "5.3.3")])
def test_every_message_has_its_queue_offset_in_a_plain_broker(name: str, release: str, tmp_path: Path) -> None:
    source, new = dledger.unpack(name, tmp_path / "old"), tmp_path / "new"
    made = migrate(Disk(), of_store(new), of_store(source))
    assert (made.lost_ranges, made.refusal) == (0, None)
    expected = sent(source)
    assert {queue: len(some) for queue, some in expected.items()} == {
        (topic, q): (count + 1 - q) // 2 for topic, count in dledger.manifest(name)["messages"].items() for q in (0, 1)
    }
    with real_broker.name_server(tmp_path / "names", apache=generate_dledger.apache_of(release)) as names:
        lines = generate_dledger.settings_of(release, 0, dledger=False)
        with real_broker.broker(new, names, lines, apache=generate_dledger.apache_of(release)) as broker:
            for (topic, queue_id), some in expected.items():
                assert asyncio.run(pulled(broker.broker, topic, queue_id)) == some
                asked = {"topic": topic, "queueId": queue_id}
                assert asyncio.run(ask(broker.broker, RequestCode.GET_MAX_OFFSET, "offset", **asked)) == len(some)
            offset = asyncio.run(
                ask(
                    broker.broker,
                    RequestCode.QUERY_CONSUMER_OFFSET,
                    "offset",
                    consumerGroup="G",
                    topic="T",
                    queueId=1,
                )
            )
            noted = fastjson.loads((source / "config" / "consumerOffset.json").read_text())["offsetTable"]["T@G"]
            assert offset == noted["1"] > 0
            count = dledger.manifest(name)["messages"]["T"]
            asyncio.run(_put_one_more(broker.broker, count))
    assert len(sent(new)["T", count % 2]) == len(expected["T", count % 2]) + 1
    assert check(Disk(), of_store(new)).ok


async def _put_one_more(address: str, at: int) -> None:
    async with await RemotingClient.connect(address) as client:
        await generate5.put(client, Topic("T"), at)
        await generate5.until_there(client, Topic("T", at + 1), at % 2)


# --- damaged tails ----------------------------------------------------------------------------------------------------


def damaged(source: Path, into: Path, seed: int) -> set[int]:
    """A copy whose last two files were damaged; the bytes that were, as offsets."""
    some = random.Random(seed)
    store = into / f"{seed:04}"
    stores.copy(source, store)
    (store / "dledger-n0" / "index").mkdir(exist_ok=True)
    entries = [row for row in dump_entries(Disk(), survey(Disk(), of_store(source))) if row.kind == ENTRY]
    files = dledger.entry_files(store)[-2:]
    tail = [row for row in entries if row.offset >= int(files[0].name)]
    hit: set[int] = set()
    for _ in range(some.choice((1, 1, 2))):
        row = some.choice((tail[-1], *some.sample(tail, 3)))
        kind = some.randrange(4)
        begin = row.offset + some.randrange(row.length)
        length = some.randrange(1, 60)
        if kind == 0:  # a header
            begin, length = row.offset + some.randrange(HEAD_SIZE), some.randrange(1, 8)
        elif kind == 1:  # all from there on: pages that were never written
            length = 1 << 20
        path = files[-1] if begin >= int(files[-1].name) else files[0]
        base = int(path.name)
        length = min(length, base + SIZE - begin)
        with path.open("r+b") as file:
            file.seek(begin - base)
            before = file.read(length)
            after = bytes(length) if kind in (1, 2) else some.randbytes(length)
            file.seek(begin - base)
            file.write(after)
        hit |= {begin + i for i in range(length) if before[i] != after[i]}
    return hit


def recovered(directory: Path) -> list[apache.Line]:
    """What DLedger's own recovery makes of each store in a directory."""
    with apache.command("Entries", [str(directory), str(SIZE)]) as words:
        words[words.index("-cp") + 1] += f"{os.pathsep}{toolchain.apache_broker().class_path}"  # it logs
        ran = subprocess.run(words, capture_output=True, timeout=120, check=False)
    assert ran.returncode == apache.Exit.OPENED, ran.stderr.decode()[-2000:]
    return apache.parse(
        b"".join(line for line in ran.stdout.splitlines(True) if line.startswith(b'{"type"'))
    )  # no logs


def test_no_sound_message_is_lost_that_dledger_keeps(tmp_path: Path, record_property: Any) -> None:
    """Of damaged tails DLedger's own recovery keeps what lies before the damage. We read more."""
    source = dledger.unpack("killed5", tmp_path / "source")
    whole = {row.entry.index: row for row in dump_entries(Disk(), survey(Disk(), of_store(source))) if row.entry}
    hits = {seed: damaged(source, tmp_path / "cases", seed) for seed in range(CASES)}
    ours: dict[int, set[int]] = {}
    for seed in hits:
        rows = dump_entries(Disk(), survey(Disk(), of_store(tmp_path / "cases" / f"{seed:04}")))
        ours[seed] = {row.message.physical_offset for row in rows if row.kind in (ENTRY, BARE) and row.message}
    lines = recovered(tmp_path / "cases")
    assert len(lines) == CASES
    lost_by_them = lost_by_us = 0
    for line in lines:
        seed = int(line["store"])
        sound = {
            row.offset + HEAD_SIZE: index
            for index, row in whole.items()
            if not hits[seed] & set(range(row.offset + HEAD_SIZE, row.offset + row.length))
        }
        assert line["failed"] == "", line
        lost_by_us += len(sound.keys() - ours[seed])
        theirs = {at for at, index in sound.items() if index <= line["endIndex"]}
        assert theirs <= ours[seed], seed
        lost_by_them += len(sound) - len(theirs)
    record_property(
        "dledger", f"{CASES} damaged tails: sound messages lost by us {lost_by_us}, by DLedger {lost_by_them}"
    )
    assert lost_by_us == 0
    assert lost_by_them > 0
    shutil.rmtree(tmp_path / "cases")


def test_a_header_says_what_dledger_reads(tmp_path: Path) -> None:
    """Field by field, by its own rules: what it recovers of a sound store is all of it."""
    source = dledger.unpack("mixed4", tmp_path / "stores")
    (source / "dledger-n0" / "index").mkdir(exist_ok=True)
    rows = [row for row in dump_entries(Disk(), survey(Disk(), of_store(source))) if row.entry]
    (line,) = recovered(tmp_path / "stores")
    last = rows[-1].entry
    assert last is not None
    assert (line["endIndex"], line["endPos"]) == (last.index, last.pos + last.size)
    assert decode(last.encode()) == last
