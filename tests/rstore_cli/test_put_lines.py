"""The lines of `put --jsonl`: whatever they hold, they are what `from_json` makes of them line by line."""

from __future__ import annotations

import io
import json
import re
import time
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from engine.errors import InvalidArgument
from engine.format.hosts import Host
from engine.format.message import Message
from engine.format.topic_rules import refused_by_client
from rstore_cli import put_lines
from rstore_cli.messages import from_json
from rstore_cli.put_lines import parsed
from rstore_cli.render import printable
from tests.rstore_cli.conftest import Cli

NOW = 1_700_000_000_000
HOST = Host(b"\x0a\0\0\2", 10911)
PLAIN = [
    b'{"topic":"T","body":"one"}',
    '{"topic":"T","body":"zwei ü 中 😀","properties":{"KEYS":"k ü","TAGS":"a"}}'.encode(),
    b'{"topic":"T","queueId":3,"properties":{}}',
    b'{"topic":"Other","body":"a \\" \\\\ \\n \\u00e9 \\ud83d\\ude00","properties":{"a":"\\u00e9"}}',
    b'{"body":"no topic","topic":"T"}',
    b' {"topic" : "T", "body" : "" } ',
]
WHOLE = [
    b'{"kind":"message","msgId":"7F00","topic":"T","queueId":1,"queueOffset":5,"physicalOffset":7,"storeSize":130,'
    b'"bodyCRC":1,"flag":-3,"sysFlag":4,"bornTimestamp":1700000000001,"bornHost":"192.0.2.7:3","storeTimestamp":9,'
    b'"storeHost":"[2001:db8::1]:10911","reconsumeTimes":2,"preparedTransactionOffset":0,"properties":{"A":"b"},'
    b'"bodyLength":3,"body":"abc"}',
    b'{"topic":"T","bodyBase64":"AAH/"}',
    b'{"topic":"T","bodyBase64":"AAH/","body":"not this"}',
    b'{"topic":"T","bodyBase64":null,"body":"this"}',
    b'{"topic":"T","sysFlag":1,"decompressedLength":9,"body":"was compressed"}',
    b'{"topic":"SCHEDULE_TOPIC_XXXX","queueId":2,"properties":{"REAL_TOPIC":"T","REAL_QID":"7","DELAY":"3"},"body":"x"}',
    b'{"topic":"SCHEDULE_TOPIC_XXXX","body":"stays"}',
    b'{"topic":"T","properties":{"DELAY":"3"}}',
    b'{"kind":"blank"}',
    b'{"kind":"damage","topic":5}',
    b'{"kind":"message","topic":"T"}',
    b'{"kind":null,"topic":"T"}',
    b'{"topic":"T","flag":4294967296,"preparedTransactionOffset":5}',
    b'{"topic":"T","queueId":18446744073709551615}',
    b'{"topic":"T","queueId":18446744073709551616}',
    b'{"topic":"T","queueId":-0}',
    b'{"topic":"T","body":"\\ud800 half a pair"}',
    b'{"topic":"T","properties":{"a":"\\udfff"}}',
    b'{"topic":"T","body":"first","body":"last","properties":{"b":"1","a":"2","b":"3"}}',
    b'{"topic":"T","properties":{"v":""}}',
    b'{"topic":"T","body":"\\u0001 \\u0002 in a body"}',
    b'{"topic":"T","queueId":null,"body":null,"properties":null,"bornHost":null,"flag":null}',
    b"",
    b"   ",
    "\u2028\x85".encode(),
    b"\x1c\x1f",
    b'{"topic":"T","body":"' + b"long" * 3000 + b'"}',
]
HOSTILE = [
    b"{", b"[]", b"{}", b"1", b"null", b'"T"', b"{'topic':'T'}", b'{"topic":"T"} x', b'{"topic":"T"}{"topic":"T"}',
    b"NaN", b'{"topic":NaN}', b'{"topic":1}', b'{"topic":["T"]}', b'{"topic":true}', b'{"topic":""}',
    b'{"topic":null}',
    b'{"topic":"T","queueId":"x"}', b'{"topic":"T","queueId":1.0}', b'{"topic":"T","queueId":true}',
    b'{"topic":"T","queueId":1e400}', b'{"topic":"T","properties":{"a":1}}', b'{"topic":"T","properties":{"a":null}}',
    b'{"topic":"T","properties":[]}', b'{"topic":"T","properties":"a"}', b'{"topic":"T","properties":{"":"x"}}',
    b'{"topic":"T","properties":{"a":"\\u0001"}}', b'{"topic":"T","properties":{"a\\u0002":"x"}}',
    b'{"topic":"T","body":5}', b'{"topic":"T","body":[]}', b'{"topic":"T","bodyBase64":"!"}',
    b'{"topic":"T","bodyBase64":5}', '{"topic":"T","bodyBase64":"ü"}'.encode(), b'{"topic":"T","bornHost":"x"}',
    b'{"topic":"T","bornHost":5}', b'{"topic":"T","storeHost":"1.2.3.4:99999999999"}',
    b'{"topic":"' + b"x" * 128 + b'"}',
    b'{"topic":"a b"}', b'{"topic":"T","queue_id":1}', b'{"topic":"T","keys":"k"}', b'{"topic":"T","payload":"x"}',
    b'{"topic":"T","":1}', b'{"topic":"T","body":"\xff"}', b'{"topic":"T","body":"\xed\xa0\x80"}', b"\xef\xbb\xbf{}",
    b'{"topic":"T","body":"\x01"}', b'{"topic":"T","body":"tab\there"}', b"[" * 100_000, b'{"a":' * 5000,
    b'{"topic":"T","bornTimestamp":"now"}', b'{"topic":"T","sysFlag":false}', b'{"topic":"\\ud800"}', b"\0",
]  # fmt: skip


class Pieces(io.RawIOBase):
    """Bytes that come in pieces of any size, as from a pipe."""

    def __init__(self, data: bytes, chance: Random) -> None:
        self._data, self._chance = data, chance

    def read1(self, size: int) -> bytes:
        size = min(size, self._chance.choice([1, 2, 17, 300, 5000, 1 << 20]))
        piece, self._data = self._data[:size], self._data[size:]
        return piece


@pytest.fixture(params=["plain", "kernel"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The plain way alone, or the kernel wherever it can be asked."""
    if request.param == "kernel":
        monkeypatch.setattr(put_lines, "MANY", 1)
        monkeypatch.setattr(put_lines, "_LONGEST_PAUSE", 0)
    return str(request.param)


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands still: a line without bornTimestamp gets it from there."""
    monkeypatch.setattr(put_lines, "time", type(time)("still"))
    monkeypatch.setattr(put_lines.time, "time_ns", lambda: NOW * 1_000_000, raising=False)


def plainly(data: bytes, topic: str | None, queue_id: int | None) -> tuple[list[Message], str | None]:
    """Line by line, as the rules are written; those up to the first line that is none, and what is said."""
    messages: list[Message] = []
    lines = re.split(rb"\r\n|\r|\n", data)
    for number, line in enumerate(lines if lines[-1] else lines[:-1], 1):
        try:
            text = line.decode()
            if not text.strip():
                continue
            message = from_json(json.loads(text), topic=topic, queue_id=queue_id, now_ms=NOW, store_host=HOST)
            wrong = None if message is None else refused_by_client(message.topic)
            if wrong is not None:
                return messages, f"line {number}: {printable(wrong.rstrip('.'))}"
        except json.JSONDecodeError as error:
            return messages, f"line {number}: not JSON: {error.msg}"
        except UnicodeDecodeError:
            return messages, f"line {number}: not UTF-8"
        except RecursionError:
            return messages, f"line {number}: not JSON: nested too deeply"
        except InvalidArgument as error:
            return messages, f"line {number}: {error.message}"
        if message is not None:
            messages.append(message)
    return messages, None


def quickly(data: bytes, topic: str | None, queue_id: int | None, chance: Random) -> tuple[list[Message], str | None]:
    messages: list[Message] = []
    try:
        for block in parsed(cast("Any", Pieces(data, chance)), "f", topic, queue_id, HOST):
            assert block
            messages += block
    except InvalidArgument as error:
        return messages, error.message
    return messages, None


def check(data: bytes, topic: str | None, queue_id: int | None, chance: Random) -> None:
    expected, wrong = plainly(data, topic, queue_id)
    messages, said = quickly(data, topic, queue_id, chance)
    assert said == wrong
    assert [(one, list(one.properties.items())) for one in messages] == [
        (one, list(one.properties.items())) for one in expected
    ]


@pytest.mark.parametrize("seed", range(4))
def test_lines_are_what_they_are_line_by_line(seed: int) -> None:
    chance = Random(seed)
    for _ in range(100):
        lines = chance.choices(PLAIN, k=chance.choice([0, 1, 50]))
        lines += chance.choices(PLAIN + WHOLE, k=chance.choice([0, 0, 9]))
        lines += chance.choices(HOSTILE, k=chance.choice([0, 0, 0, 1]))
        lines += chance.choices(PLAIN, k=chance.choice([0, 5]))
        end = chance.choice([b"\n", b"\n", b"\r\n", b"\r"])
        data = end.join(lines) + chance.choice([b"", end, end * 3])
        check(data, chance.choice([None, None, "Mine"]), chance.choice([None, None, 4]), chance)


@pytest.mark.parametrize("topic", [None, "Mine"])
@pytest.mark.parametrize("line", HOSTILE + WHOLE, ids=lambda line: line[:40].decode("latin-1"))
def test_each_line_that_is_odd(line: bytes, topic: str | None) -> None:
    chance = Random(1)
    check(line, topic, None, chance)
    check(b"\n".join([*PLAIN, line, *PLAIN]), topic, None, chance)
    check(b"\n".join([*PLAIN, line, line, *PLAIN]) + b"\n", topic, 2, chance)


def test_no_line_is_made_of_two() -> None:
    """What a line has too little of is not taken from the next one."""
    for data in (
        b'{"topic":"T"\n}',
        b'{"topic":"T",\r"body":"x"}',
        b'{"topic":"T"},\n{"topic":"T"}',
        b'[\n{"topic":"T"}\n]',
    ):
        check(data, None, None, Random(2))


def test_a_mutated_line_is_judged_alike() -> None:
    chance = Random(5)
    for _ in range(1500):
        line = bytearray(chance.choice(PLAIN + WHOLE[:6]))
        for _ in range(chance.choice([1, 1, 3])):
            at = chance.randrange(len(line) + 1)
            line[at : at + chance.choice([0, 1])] = chance.choice(
                [bytes([chance.randrange(256)]), b'"', b"\\", b"{", b"}", b",", b":", b"\\u0001", b"9", b"null", b""]
            )
        check(PLAIN[0] + b"\n" + bytes(line) + b"\n" + PLAIN[1], None, None, chance)


def test_the_kernel_takes_a_line_as_it_is_or_leaves_it() -> None:
    """Of plain lines it makes all messages; of lines that were changed those that the rules make, or none."""
    chance = Random(7)
    plain = [*PLAIN[:3], PLAIN[4], PLAIN[5], b'{"topic":"T","queueId":999999999,"body":"\\" \\\\ \\/ \\b\\f\\n\\r\\t"}']
    plain.append(b'{"topic":"T","body":"' + b"long" * 3000 + b'"}')
    plain += [
        b'{"topic":"Other","body":"%s","properties":{"A":"","B":"%s"}}' % (b"x" * n, b"y" * n) for n in range(140)
    ]
    taken = 0
    for number in range(3000):
        lines = chance.choices(plain, k=chance.choice([1, 3, 40]))
        if number % 3:
            line = bytearray(chance.choice(plain + WHOLE[:6]))
            for _ in range(chance.choice([1, 1, 2])):
                at = chance.randrange(len(line) + 1)
                line[at : at + chance.choice([0, 1])] = chance.choice(
                    [
                        bytes([chance.randrange(256)]),
                        b'"',
                        b"\\",
                        b"{",
                        b"}",
                        b",",
                        b":",
                        b"\\n",
                        b"0",
                        b" ",
                        b"\t",
                        b"",
                    ]
                )
            lines.insert(chance.randrange(len(lines) + 1), bytes(line.replace(b"\n", b" ").replace(b"\r", b" ")))
        data = b"\n".join(lines) + chance.choice([b"", b"\n"])
        topic, queue_id = chance.choice([None, "Mine"]), chance.choice([None, 4])
        maker = put_lines._Maker(topic, queue_id, HOST)
        maker.messages([b'{"topic":"T"}', b'{"topic":"Other"}'], [])
        run = maker.run(data)
        if run is None:
            assert number % 3 or put_lines.MANY > 1
            continue
        taken += 1
        expected, wrong = plainly(data, topic, queue_id)
        assert wrong is None
        assert [(one, list(one.properties.items())) for one in run] == [
            (one, list(one.properties.items())) for one in expected
        ]
        cut = slice(chance.randrange(len(run) + 1), chance.randrange(len(run) + 1))
        assert list(run[cut]) == expected[cut]
        assert list(run[cut][1:]) == expected[cut][1:]
        at = chance.randrange(-len(run), len(run))
        assert run[at] == expected[at]
    assert taken > 1300 or put_lines.MANY > 1


def test_what_was_read_is_put_before_a_line_that_is_none(new_store: Path, cli: Cli, tmp_path: Path) -> None:
    """All of a long file before its bad line, and the answers to them, by number."""
    path = tmp_path / "lines"
    good = b"".join(b'{"topic":"T","body":"%d","queueId":%d}\n' % (n, n % 2) for n in range(20_000))
    path.write_bytes(good + b'{"topic":"T","body":"\xff"}\n' + good)
    ran = cli("--store", new_store, "put", "--jsonl", path, "--json")
    assert ran.code == 2
    assert "line 20001: not UTF-8" in ran.err
    *answers, error = map(json.loads, ran.out.splitlines())
    assert "20001" in error["error"]["message"]
    assert [(one["queueId"], one["queueOffset"]) for one in answers] == [(n % 2, n // 2) for n in range(20_000)]
    got = cli("--store", new_store, "get", "T", "1", "9999", "--json").lines
    assert [one["body"] for one in got] == ["19999"]
    assert cli("--store", new_store, "check").code == 0
