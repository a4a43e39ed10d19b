"""Frames and headers: literal bytes both ways, any cut of the stream, hostile lengths, mutated bytes."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import FormatError
from engine.wire.codes import LanguageCode, RequestCode, ResponseCode
from engine.wire.command import ONEWAY, RESPONSE, BadHeader, RemotingCommand, SerializeType, decode_header
from engine.wire.frames import MAX_FRAME, BadFrame, FrameReader, encode, stored_frame

ints = st.integers(-(1 << 31), (1 << 31) - 1)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
words = texts.filter(bool)
commands = st.builds(
    RemotingCommand,
    code=st.integers(0, 32767),
    opaque=ints,
    flag=st.integers(0, 3),
    remark=st.none() | words,
    ext=st.none() | st.dictionaries(words, words, min_size=1, max_size=5),
    body=st.binary(max_size=50),
    language=st.sampled_from(list(LanguageCode)),
    version=st.integers(0, 32767),
    serialize=st.sampled_from(list(SerializeType)),
)


def frame(command: RemotingCommand) -> bytes:
    return b"".join(encode(command))


def read(data: bytes) -> list[RemotingCommand]:
    return list(FrameReader().feed(data))


def test_a_json_frame_byte_by_byte() -> None:
    header = (
        b'{"code":310,"extFields":{"a":"G"},"flag":0,"language":"JAVA","opaque":7,'
        b'"serializeTypeCurrentRPC":"JSON","version":409}'
    )
    literal = bytes([0, 0, 0, 4 + len(header) + 2, 0, 0, 0, len(header)]) + header + b"hi"
    command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, 7, ext={"a": "G"}, body=b"hi", language=LanguageCode.JAVA)
    assert frame(command) == literal
    assert read(literal) == [command]


def test_a_binary_frame_byte_by_byte() -> None:
    header = bytes.fromhex(
        "0022" "00" "0199" "00000007" "00000002"  # HEART_BEAT, JAVA, 409, opaque 7, one-way
        "00000003" "6f6b21"  # remark
        "00000015" "0005" "67726f7570" "00000002" "4731" "0001" "6b" "00000001" "76"
    )  # fmt: skip
    (command,) = read(_sized(header))
    assert command == RemotingCommand(
        34, 7, ONEWAY, "ok!", {"group": "G1", "k": "v"}, b"", LanguageCode.JAVA, 409, SerializeType.ROCKETMQ
    )
    assert frame(command) == _sized(header)


def _sized(header: bytes) -> bytes:
    return (4 + len(header)).to_bytes(4, "big") + (1 << 24 | len(header)).to_bytes(4, "big") + header


def test_what_clients_really_send_is_taken() -> None:
    """ali-ons: raw numbers and booleans, nulls, a language that 4.9.8 doesn't know, no remark, an unknown key."""
    header = json.dumps(
        {
            "code": 310,
            "language": "NODE_RED",
            "version": 121,
            "opaque": 3,
            "flag": 0,
            "extFields": {"e": 0, "k": False, "x": None, "t": 1.5, "n": "ü"},
            "new": [1],
        }
    ).encode()
    command = decode_header(header, 0, b"")
    assert command.ext == {"e": "0", "k": "false", "t": "1.5", "n": "ü"}
    assert (command.language, command.remark, command.version) == (None, None, 121)
    assert decode_header(b"{}", 0, b"").fields == {}


def test_an_answer_is_serialised_as_its_request() -> None:
    request = RemotingCommand(11, 99, serialize=SerializeType.ROCKETMQ)
    answer = request.answer(ResponseCode.PULL_NOT_FOUND, "why")
    assert (answer.opaque, answer.flag, answer.is_response, answer.serialize) == (99, RESPONSE, True, 1)
    assert read(frame(answer)) == [answer]


@given(st.lists(commands, max_size=5), st.lists(st.integers(1, 40), min_size=1))
def test_any_commands_in_any_pieces(put: list[RemotingCommand], sizes: list[int]) -> None:
    data = b"".join(map(frame, put))
    reader = FrameReader()
    found: list[RemotingCommand] = []
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        found += reader.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert found == put
    assert reader.held == 0


@pytest.mark.parametrize(
    "start",
    [
        (1 << 30).to_bytes(4, "big"),
        (MAX_FRAME + 1).to_bytes(4, "big"),
        (3).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01",
    ],
)
def test_a_hostile_length_is_refused_before_anything_is_kept(start: bytes) -> None:
    reader = FrameReader()
    with pytest.raises(BadFrame) as caught:
        list(reader.feed(start))
    assert caught.value.offset == 0


def test_a_header_beyond_its_frame_is_refused() -> None:
    good = frame(RemotingCommand(34))
    reader = FrameReader()
    with pytest.raises(BadFrame) as caught:
        list(reader.feed(good + b"\0\0\0\x10" + b"\0\0\0\x0d"))
    assert caught.value.offset == len(good) + 4


def test_how_much_is_held() -> None:
    data = frame(RemotingCommand(34, body=bytes(1000)))
    reader = FrameReader()
    for start, end in ((0, 3), (3, 7), (7, 500)):
        assert list(reader.feed(data[start:end])) == []
        assert reader.held == end
    assert len(list(reader.feed(data[500:] + data[:5]))) == 1
    assert reader.held == 5


@pytest.mark.parametrize("header", [b"", b"[]", b"{", b'{"code":"x"}', b'{"code":1e30}', b'{"extFields":[]}', b"\xff"])
def test_what_is_no_json_header(header: bytes) -> None:
    with pytest.raises(BadHeader):
        decode_header(header, 0, b"")


numbers = (
    ints
    | ints.map(str)
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.none()
    | texts
    | st.integers(-9, 1 << 32)
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("code", "opaque", "flag", "version"), numbers)))
def test_each_number_of_a_header_is_read_as_if_it_stood_alone(header: dict[str, object]) -> None:
    def read(fields: dict[str, object]) -> tuple[int, ...] | str:
        try:
            command = decode_header(json.dumps(fields).encode(), 0, b"")
        except BadHeader as error:
            return error.message
        return command.code, command.opaque, command.flag, command.version

    alone = [read({name: header[name]} if name in header else {}) for name in ("code", "opaque", "flag", "version")]
    wrong = [answer for answer in alone if isinstance(answer, str)]
    assert read(header) == (wrong[0] if wrong else tuple(answer[i] for i, answer in enumerate(alone)))


def test_an_unknown_serialisation() -> None:
    with pytest.raises(BadHeader, match="unknown header serialisation 7"):
        decode_header(b"{}", 7, b"")


def test_a_frame_that_none_can_hold_is_not_made() -> None:
    with pytest.raises(FormatError):
        encode(RemotingCommand(11, body=bytes(MAX_FRAME)))
    with pytest.raises(FormatError, match="out of range for its field"):
        encode(RemotingCommand(1 << 20, serialize=SerializeType.ROCKETMQ))


def test_mutated_headers_give_a_command_or_a_typed_error() -> None:
    chance = random.Random(1)
    models = [
        frame(RemotingCommand(310, 5, 0, "r", {"a": "b", "topic": "T"}, b"x", serialize=kind)) for kind in SerializeType
    ]
    taken = refused = 0
    for _ in range(20_000):
        data = bytearray(chance.choice(models))
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            taken += len(read(bytes(data)))
        except FormatError as error:
            refused += error.offset is not None
    assert taken > 1000
    assert refused > 1000


def test_the_quick_answer_to_a_send_is_the_slow_one() -> None:
    ext = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "msgId": "7F0A", "queueId": "3", "queueOffset": "12"}
    request = RemotingCommand(310, opaque=-7)
    assert stored_frame(-7, "7F0A", 3, 12) == frame(request.answer(ext=ext))
