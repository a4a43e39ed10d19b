"""The replication protocol under a controller: literal bytes, any pieces, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.format.epoch_file import EpochEntry
from engine.wire.ha import MAX_BODY, BadTransfer, Transfer
from engine.wire.ha_controller import (
    GREETED,
    HEADER,
    ControllerReader,
    MasterEpochs,
    decode_greeting,
    encode_greeting,
    encode_report,
    epochs_size,
)

# as a broker under a controller sends them: its greeting, and a heartbeat before the first message
GREETING = bytes.fromhex("00000001 00000018 0000000000001000 00000003") + bytes.fromhex(
    "00000001 0000000000000000 00000003 0000000000000400"
)
NOWHERE = bytes.fromhex("00000002 00000000 ffffffffffffffff 00000001 0000000000000000 0000000000000000")


def frame(offset: int, body: bytes, state: int = 2) -> bytes:
    return HEADER.pack(state, len(body), offset, 3, 0x400, 0x800) + body


def test_literal_bytes() -> None:
    assert encode_greeting(last_file=False) == bytes.fromhex("00000001 0000 0001 ffffffffffffffff")
    assert encode_greeting(last_file=True) == bytes.fromhex("00000001 0001 0001 ffffffffffffffff")
    assert encode_report(0x1122) == bytes.fromhex("00000002 0000000000001122")
    assert frame(0x400, b"")[:20] == bytes.fromhex("00000002 00000000 0000000000000400 00000003")
    assert epochs_size(GREETING[:20]) == 24
    epochs = (EpochEntry(1, 0), EpochEntry(3, 0x400))
    assert decode_greeting(GREETING[:20], GREETING[20:]) == MasterEpochs(0x1000, epochs)


@given(
    st.lists(st.tuples(st.integers(0, 1 << 40), st.binary(max_size=300)), max_size=6),
    st.lists(st.integers(1, 90), min_size=1),
)
def test_transfers_in_any_pieces(put: list[tuple[int, bytes]], sizes: list[int]) -> None:
    data = NOWHERE + b"".join(frame(offset, body) for offset, body in put)
    reader = ControllerReader()
    log: dict[int, int] = {}
    heartbeats: list[int] = []
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        for transfer in reader.feed(data[at : at + size]):
            log.update({transfer.offset + i: byte for i, byte in enumerate(transfer.body)})
            heartbeats += [] if len(transfer.body) else [transfer.offset]
        at, turn = at + size, turn + 1
    assert log == {offset + i: byte for offset, body in put for i, byte in enumerate(body)}
    assert heartbeats == [offset for offset, body in put if not body]
    assert not reader.within


@pytest.mark.parametrize("state", [0, 1, 3, 4, 5, -1])
def test_another_state_is_no_transfer(state: int) -> None:
    good = frame(0, b"x")
    with pytest.raises(BadTransfer, match="state"):
        list(ControllerReader().feed(good + frame(1, b"y", state)))


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (-2, 0), (0, -1), (0, MAX_BODY + 1), ((1 << 63) - 1, 1)])
def test_a_hostile_header_is_refused_before_its_body_is_kept(offset: int, size: int) -> None:
    with pytest.raises(BadTransfer):
        list(ControllerReader().feed(HEADER.pack(2, size, offset, 0, 0, 0)))


def test_a_heartbeat_has_its_offset() -> None:
    assert list(ControllerReader().feed(NOWHERE + frame(7, b""))) == [Transfer(7, b"")]


@pytest.mark.parametrize(
    ("state", "size", "end"), [(2, 0, 0), (1, 13, 0), (1, -12, 0), (1, 12 * 1001, 0), (1, 0x7FFFFFFF, 0), (1, 0, -1)]
)
def test_a_greeting_that_no_master_sends(state: int, size: int, end: int) -> None:
    with pytest.raises(BadTransfer, match="greeting"):
        epochs_size(GREETED.pack(state, size, end, 0))


@pytest.mark.parametrize(
    "body", ["00000002 0000000000000000" * 2, "00000001 0000000000001001", "00000001 ffffffffffffffff"]
)
def test_epochs_that_no_master_has(body: str) -> None:
    data = bytes.fromhex(body)
    with pytest.raises(BadTransfer, match="epoch"):
        decode_greeting(GREETED.pack(1, len(data), 0x1000, 0), data)
