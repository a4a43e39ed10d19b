"""Headers by natives: the commands and frames of the plain way, and its errors, whatever bytes come."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("numba")

from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.broker.net import headers
from engine.broker.net.headers import REQUEST, STORED
from engine.errors import FormatError
from engine.log.kernels import kept
from engine.log.natives import FastLane
from engine.wire.command import LANGUAGES, RemotingCommand, SerializeType, decode_header
from engine.wire.frames import STORED_PIECES, stored_frame
from tests.support.edges import Edge
from tests.support.wide import examples

pytestmark = [pytest.mark.skipif(kept._identity() is None, reason="no code is kept here"), pytest.mark.wide]

TEXT = st.text(alphabet=st.sampled_from('ab"\\/\x01\x02\x00\n\x7f\x80é漢😀\ud800{}:,'), max_size=8) | st.text(
    max_size=4
)
NUMBER = st.sampled_from([0, -0, 7, -1, (1 << 31) - 1, -(1 << 31), 1 << 31, 10**18, 10**30]) | st.integers()
VALUE: st.SearchStrategy[Any] = st.one_of(TEXT, NUMBER, st.none(), st.booleans(), st.floats(), st.just([]), st.just({}))
PLAIN = {
    "code": NUMBER,
    "extFields": st.dictionaries(TEXT, TEXT, max_size=4) | st.dictionaries(TEXT, VALUE, max_size=2),
    "flag": st.just(0) | NUMBER,
    "language": st.sampled_from([*LANGUAGES, "java", ""]) | VALUE,
    "opaque": st.just(9) | NUMBER,
    "remark": TEXT | VALUE,
    "serializeTypeCurrentRPC": st.just("JSON") | VALUE,
    "version": st.just(399) | NUMBER,
    "another": VALUE,
}
NEEDED = ("code", "flag", "language", "opaque", "version")
HEADERS = st.fixed_dictionaries(
    {name: PLAIN[name] for name in NEEDED}, optional={name: PLAIN[name] for name in PLAIN if name not in NEEDED}
)


EDGE = Edge()


def builtin(lane: FastLane) -> Callable[..., Any]:
    made = lane.compiled()
    assert made is not None
    return made


def outcome(work: Callable[[], RemotingCommand]) -> object:
    try:
        command = work()
    except FormatError as error:
        return type(error), str(error), error.offset
    return [(type(value), value) for value in command], list((command.ext or {}).items())


def held_equal(header: bytes) -> bool:
    """The native gives what the plain way does, or nothing; whether it gave something."""
    body = b"body"
    plain = outcome(lambda: decode_header(header, 0, body))
    assert outcome(lambda: headers.command_of(header, 0, body)) == plain
    command = builtin(REQUEST)(
        EDGE.put(header), body, RemotingCommand, LANGUAGES, SerializeType.JSON, headers._FIELDS, None
    )
    assert command is None or outcome(lambda: command) == plain
    return command is not None


@settings(max_examples=examples(800), deadline=None)
@given(HEADERS, st.booleans(), st.sampled_from([(",", ":"), (", ", ": ")]), st.randoms())
def test_any_header(
    fields: dict[str, Any], ascii_only: bool, separators: tuple[str, str], chance: random.Random
) -> None:
    """Whole, then with bytes changed and cut."""
    text = json.dumps(fields, ensure_ascii=ascii_only, separators=separators)
    header = text.encode("utf-8", "surrogatepass")
    held_equal(header)
    for _ in range(5):
        changed = bytearray(header)
        for _ in range(chance.choice([1, 1, 3])):
            changed[chance.randrange(len(changed))] = chance.choice(b'"\\\\u0{}:,19-.e \\n\\xff\\x80')
        held_equal(bytes(changed))
    held_equal(header[: chance.randrange(len(header))])


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=60))
@example(b"")
@example(b"{}")
@example(b'{"code":1')
@example(b'{"')
def test_any_bytes(header: bytes) -> None:
    held_equal(header)
    held_equal(b'{"code":1,"flag":0,"language":"JAVA","opaque":5,"version":1,"remark":"' + header)


BEGIN = b'{"code":310,"extFields":{"a":"G","i":'
END = b'},"flag":0,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":399}'


@pytest.mark.parametrize(
    ("text", "by_native"),
    [
        (b'"plain"', True),
        (b'"K\\u0001v\\u0002W\\u0001true"', True),
        (b'"\\u000A\\u001f\\u007F\\" \\\\ \\/ \\b\\f\\n\\r\\t"', True),
        ('"é漢😀"'.encode(), True),
        (b'"\\u0080"', False),
        (b'"\\u6f22"', False),
        (b'"\\u 01"', False),
        (b'"\\u0 1x"', False),
        (b'"\\u000"', False),
        (b'"\\u00g0"', False),
        (b'"\\x41"', False),
        (b'"\\"', False),
        (b'"\xff"', False),
        (b'"\xed\xa0\x80"', False),
        (b'"a\x01"', False),
        (b'"a\nb"', False),
        (b'"' + b"x" * 5000 + b'"', True),
        (b'"' + b"x" * 4094 + b'\\n"', True),
        (b'"' + b"x" * 5000 + b'\\n"', False),
        (b"7", False),
        (b"null", False),
        (b'{"a":"b"}', False),
        (b'"a","i":"twice"', True),
        (b'"a",', False),
        (b'"a"}', False),
    ],
)
def test_texts(text: bytes, by_native: bool) -> None:
    assert held_equal(BEGIN + text + END) == by_native


@pytest.mark.parametrize(
    "number",
    [
        "0",
        "-0",
        "00",
        "01",
        "-1",
        "2147483647",
        "2147483648",
        "-2147483648",
        "-2147483649",
        "1.0",
        "1e3",
        "-",
        "+1",
        "9" * 18,
        "9" * 19,
        "9" * 40,
        '"7"',
        "true",
        "null",
        "",
    ],
)
def test_numbers(number: str) -> None:
    header = f'{{"code":{number},"flag":0,"language":"JAVA","opaque":7,"version":399}}'.encode()
    plain = number.lstrip("-").isdigit() and str(int(number)) == number and -(1 << 31) <= int(number) < 1 << 31
    assert held_equal(header) == plain


def test_a_field_that_comes_twice_is_left_to_the_plain_way() -> None:
    assert not held_equal(b'{"code":1,"flag":0,"language":"JAVA","opaque":7,"version":399,"code":2}')
    assert not held_equal(b'{"code":1,"flag":0,"language":"JAVA","opaque":7,"version":399,"remark":"a","remark":"b"}')


LARGE = st.integers(-(1 << 70), 1 << 70)


@settings(max_examples=examples(400), deadline=None)
@given(st.integers(-(1 << 31), (1 << 31) - 1) | LARGE, st.integers(0, (1 << 63) - 1), LARGE | st.integers(-9, 9), LARGE)
def test_answers_to_sends(opaque: int, physical: int, queue_id: int, queue_offset: int) -> None:
    for id_head in (b"7F00000100002A9F", b"F" * 40):
        msg_id = f"{id_head.decode()}{physical:016X}"
        plain = stored_frame(opaque, msg_id, queue_id, queue_offset)
        builtin(STORED)
        assert headers.frame_of_stored(opaque, id_head, physical, queue_id, queue_offset) == plain
    fits = all(abs(number) < 10**17 for number in (opaque, queue_id, queue_offset))
    made = builtin(STORED)(STORED_PIECES, b"7F00000100002A9F", physical, queue_id, queue_offset, opaque, None)
    assert (made is not None) == fits


def test_heads_of_another_kind_or_size_are_left_to_the_plain_way() -> None:
    native = builtin(STORED)
    for head in (bytearray(b"AA"), "AA", b"A" * 2000, None):
        assert native(STORED_PIECES, head, 1, 2, 3, 4, None) is None
    assert native(STORED_PIECES[:4], b"AA", 1, 2, 3, 4, None) is None
