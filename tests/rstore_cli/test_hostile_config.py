"""Files of config/ that somebody else has written: no command fails of itself, runs out of memory, or writes to the
terminal what they hold."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from engine.errors import CannotRepair
from tests.conftest import Store
from tests.engine.broker.client import daemon
from tests.rstore_cli.conftest import Cli
from tests.support.wide import sample

VALUES = ("1e999", "-1e999", "NaN", "Infinity", "9" * 5000, '"1e999"', "{}", "[" * 100_000, "true", "-0.0", "null")
FILES = {
    "consumerOffset.json": '{"offsetTable":{"T@G":{0:%s}}}',
    "delayOffset.json": '{"offsetTable":{1:%s}}',
    "topics.json": '{"topicConfigTable":{"T":{"topicName":"T","readQueueNums":%s,"writeQueueNums":4,"perm":6}}}',
    "subscriptionGroup.json": '{"subscriptionGroupTable":{"G":{"groupName":"G","retryMaxTimes":%s}}}',
    "consumerFilter.json": '{"filterDataByTopic":{"T":{"topic":"T","filterData":{"G":{"bornTime":%s,"topic":"T",'
    '"consumerGroup":"G","expression":"a=1","expressionType":"SQL92","clientVersion":1,"deadTime":0}}}}}',
}
TEXTS = {
    "deep lists": b"[" * 200_000,
    "deep objects": b'{"a":' * 200_000,
    "not UTF-8": b'{"offsetTable":{"T@G\xff\xfe":{0:1}},"topicConfigTable":{"\xff":{}}}',
    "twice": b'{"offsetTable":{"T@G":{0:1,0:2}},"offsetTable":{}}',
    "escapes": rb'{"offsetTable":{"T\u001b[31m\nX@G\u001b[2J\n":{0:1}},"topicConfigTable":{"T\u001b[31m\n":'
    rb'{"perm":"\u001b]0;x\u0007"}},"subscriptionGroupTable":{"G\u001b[31m\n":{"groupName":"G\u001b[31m\n"}}}',
}
CASES = [
    *((name, f"{name} {value[:8]}", (text % value).encode()) for name, text in FILES.items() for value in VALUES),
    *((name, f"{name} {kind}", text) for name in FILES for kind, text in TEXTS.items()),
]
COMMANDS = (
    ("check",),
    ("doctor",),
    ("status",),
    ("--json", "status"),
    ("dump", "config"),
    ("offsets", "list"),
    ("rebuild-config", "--dry-run"),
    ("recover", "--dry-run"),
    ("plan-start",),
    ("expire", "--dry-run"),
)


def demand_sound(cli: Cli, store: Path, *command: str) -> None:
    result = cli("--store", store, *command)
    text = result.out + result.err
    assert result.code in (0, 1, 2, 4, 5), (command, text)
    assert not any(word in text for word in ("fault of rstore", "Traceback", "MemoryError", "OverflowError")), text
    assert "\x1b[31m" not in text
    assert "\x1b[2J" not in text
    assert "\x07" not in text


@pytest.mark.wide
@pytest.mark.leaves
@pytest.mark.parametrize(
    ("name", "what", "text"), sample(CASES, 5), ids=lambda value: value if " " in str(value) else ""
)
def test_every_command_reads_on(cli: Cli, fixture_copy: Store, name: str, what: str, text: bytes) -> None:
    del what
    store = fixture_copy("clean-small")
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / name).write_bytes(text)
    for command in COMMANDS:
        demand_sound(cli, store, *command)


@pytest.mark.leaves
@pytest.mark.parametrize("name", FILES)
def test_a_sparse_file_of_a_terabyte(cli: Cli, fixture_copy: Store, name: str) -> None:
    store = fixture_copy("clean-small")
    (store / "config").mkdir(exist_ok=True)
    with (store / "config" / name).open("wb") as file:
        file.truncate(1 << 40)
    for command in COMMANDS:
        demand_sound(cli, store, *command)
    assert f"{1 << 40} bytes" in cli("--store", store, "doctor").out
    assert "64 MiB" in cli("--store", store, "doctor").out


@pytest.mark.wide
@pytest.mark.leaves
@pytest.mark.parametrize(
    ("name", "what", "text"), sample(CASES, 6), ids=lambda value: value if " " in str(value) else ""
)
def test_the_daemon_starts_or_says_why(tmp_path: Path, name: str, what: str, text: bytes) -> None:
    del what

    async def start() -> None:
        async with daemon(tmp_path / "s"):
            pass

    asyncio.run(start())
    shutil.rmtree(tmp_path / "s" / "config", ignore_errors=True)
    (tmp_path / "s" / "config").mkdir()
    (tmp_path / "s" / "config" / name).write_bytes(text)
    refused = None
    try:
        asyncio.run(start())
    except CannotRepair as error:
        refused = str(error)
    assert refused is None or (name in refused and "\x1b" not in refused)
