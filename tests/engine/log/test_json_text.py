"""Parts of JSON made by kernels are those of Python's json and base64."""

from __future__ import annotations

import base64
import json
import random

import pytest

pytest.importorskip("numba")

import numpy as np

from engine.log.kernels import json_text
from engine.log.kernels.json_text import ESCAPED, SLACK

PIECES = (
    b"a", b"plain, ", b'"', b"\\", b"\n", b"\t\r\b\f", b"\x00", b"\x1f", b"\x7f", b"/", "ü".encode(), "中文".encode(),
    "\u2028\ufeff\ufffe\uffff".encode(), "\U0001f600\U0010ffff".encode(), b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf",
    b"\xed\xa0\x80", b"\xed\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\x80", b"\xff",
    b"\xe4\xb8", b"\xf0\x9f\x98", b"\xc3", b"x" * 63, b"x" * 64, b"x" * 200,
)  # fmt: skip


def array(data: bytes) -> np.ndarray:
    made = np.frombuffer(data, dtype=np.uint8)
    made.flags.writeable = False
    return made


def escaped(data: bytes, behind: bytes) -> str | None:
    out = np.zeros(ESCAPED * len(data) + SLACK + 3, dtype=np.uint8)
    end = json_text.escaped(out, 3, array(b"\xff" + data + behind), 1, 1 + len(data))
    return None if end < 0 else '"' + bytes(out[3:end]).decode() + '"'


def test_text_and_what_is_none() -> None:
    chance = random.Random(21)
    kinds = set()
    for number in range(20_000):
        data = b"".join(chance.choices(PIECES, k=chance.randrange(6)))
        if number % 3 == 0:
            data = bytes(chance.choices(range(256), k=chance.randrange(5)))
        try:
            expected = json.dumps(data.decode("utf-8"), ensure_ascii=False)
        except UnicodeDecodeError:
            expected = None
        kinds.add(expected is None)
        assert escaped(data, bytes(chance.choice((0, 1, 70)))) == expected, data
    assert kinds == {True, False}


@pytest.mark.parametrize("first", range(0x80, 0x100))
def test_each_two_bytes_of_a_character(first: int) -> None:
    for second in range(256):
        for rest in (b"", b"\x80", b"\xbf\xbf", b"\x80\x80a"):
            data = bytes((first, second)) + rest
            try:
                expected = json.dumps(data.decode("utf-8"), ensure_ascii=False)
            except UnicodeDecodeError:
                expected = None
            assert escaped(data, b"") == expected


def test_base64_of_every_length() -> None:
    chance = random.Random(22)
    for length in range(300):
        data = chance.randbytes(length)
        for behind in (b"", bytes(64)):
            out = np.zeros(2 * length + SLACK + 4, dtype=np.uint8)
            end = json_text.as_base64(out, 1, array(data + behind), 0, length)
            assert bytes(out[1:end]) == base64.b64encode(data)
    out = np.zeros(1 << 10, dtype=np.uint8)
    every = bytes(range(256)) * 2
    assert bytes(out[: json_text.as_base64(out, 0, array(every), 0, 512)]) == base64.b64encode(every)


def test_numbers() -> None:
    out = np.zeros(32, dtype=np.uint8)
    near = [sign * 10**power + more for power in range(19) for sign in (1, -1) for more in (-1, 0, 1)]
    for value in (*near, (1 << 63) - 1, -(1 << 63) + 1, 1 << 31, -(1 << 31)):
        assert bytes(out[: json_text.decimal(out, 0, value)]) == str(value).encode()


def test_where_a_byte_is() -> None:
    chance = random.Random(23)
    for _ in range(2_000):
        data = bytes(chance.choices((0, 1, 2), (90, 5, 5), k=chance.randrange(200)))
        begin = chance.randint(0, len(data))
        end = chance.randint(begin, len(data))
        place = data.find(b"\x02", begin, end)
        assert json_text.position_of(array(data), begin, end, 2) == (end if place < 0 else place)
