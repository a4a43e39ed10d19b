"""The replication protocol on literal bytes, in any pieces, and what is refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.wire.ha import (
    MAX_BODY,
    AckReader,
    BadTransfer,
    Transfer,
    TransferReader,
    encode_ack,
    encode_header,
    joined,
)

transfers = st.builds(Transfer, st.integers(0, (1 << 63) - 301), st.binary(max_size=300))


def frame(transfer: Transfer) -> bytes:
    return encode_header(transfer.offset, len(transfer.body)) + bytes(transfer.body)


def test_literal_bytes() -> None:
    assert encode_ack(0x1122) == bytes.fromhex("0000000000001122")
    assert encode_header(4194304, 32768) == bytes.fromhex("0000000000400000 00008000")
    assert list(TransferReader().feed(bytes.fromhex("0000000000400000 00000002 abcd"))) == [
        Transfer(4194304, b"\xab\xcd")
    ]
    assert Transfer(10, b"abc").end == 13


@given(st.lists(transfers, max_size=6), st.lists(st.integers(1, 50), min_size=1))
def test_transfers_in_any_pieces(put: list[Transfer], sizes: list[int]) -> None:
    data = b"".join(map(frame, put))
    reader = TransferReader()
    found: list[Transfer] = []
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        for offset, body in reader.feed(data[at : at + size]):
            if body and found and found[-1].body and len(found[-1].body) < len(put[len(found) - 1].body):
                assert offset == found[-1].end
                found[-1] = Transfer(found[-1].offset, bytes(found[-1].body) + bytes(body))
            else:
                found.append(Transfer(offset, bytes(body)))
        at, turn = at + size, turn + 1
    assert found == put
    assert not reader.within


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=30)), max_size=20), st.booleans())
def test_what_goes_on_where_another_ends_is_one(pieces: list[tuple[bool, bytes]], faulty: bool) -> None:
    put, at = [], 0
    for goes_on, body in pieces:
        at += 0 if goes_on else 7
        put.append(Transfer(at, body))
        at += len(body)
    data = b"".join(map(frame, put)) + (encode_header(-1, 0) if faulty else b"")
    found: list[Transfer] = []
    try:
        found.extend(joined(TransferReader().feed(data)))
        assert not faulty
    except BadTransfer:  # after all that came before it
        assert faulty

    def filled(transfers: list[Transfer]) -> list[tuple[int, int]]:
        return [(one.offset + i, byte) for one in transfers for i, byte in enumerate(bytes(one.body))]

    assert filled(found) == filled(put)
    assert [one.offset for one in found if not one.body] == [one.offset for one in put if not one.body]
    for one, following in itertools.pairwise(found):
        assert not (one.body and following.body and one.end == following.offset)


@given(st.lists(st.integers(0, (1 << 63) - 1), min_size=1, max_size=9), st.lists(st.integers(1, 20), min_size=1))
def test_the_newest_report_counts(put: list[int], sizes: list[int]) -> None:
    data = b"".join(map(encode_ack, put))
    reader = AckReader()
    found: list[int] = []
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        newest = reader.feed(data[at : at + size])
        found += [] if newest is None else [newest]
        at, turn = at + size, turn + 1
    assert found[-1] == put[-1]
    assert set(found) <= set(put)
    assert AckReader().feed(data + b"\0") == put[-1]


@pytest.mark.parametrize(
    ("offset", "size"), [(0, -1), (0, MAX_BODY + 1), (-1, 0), (0, (1 << 31) - 1), ((1 << 63) - 1, 1)]
)
def test_a_hostile_header_is_refused_before_its_body_is_kept(offset: int, size: int) -> None:
    reader = TransferReader()
    good = frame(Transfer(0, b"x"))
    with pytest.raises(BadTransfer) as caught:
        list(reader.feed(good + encode_header(offset, size)))
    assert caught.value.offset == len(good)


def test_a_negative_report_is_refused() -> None:
    with pytest.raises(BadTransfer):
        AckReader().feed(encode_ack(-1))
