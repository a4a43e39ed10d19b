"""Index header, entry, layout and the time difference."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import FormatError
from engine.format import index_file
from engine.format.index_file import IndexEntry, IndexHeader, IndexLayout
from tests.support import strategies

HEADER = IndexHeader(1700000000180, 1700000140927, 0, 1904566, 946, 4000)
HEADER_RAW = bytes.fromhex("0000018bcfe568b40000018bcfe78e7f000000000000000000000000001d0fb6000003b200000fa0")
headers = st.builds(
    IndexHeader,
    strategies.longs,
    strategies.longs,
    strategies.longs,
    strategies.longs,
    strategies.ints,
    st.integers(1, (1 << 31) - 1),
)
entries = st.builds(IndexEntry, strategies.ints, strategies.longs, strategies.ints, strategies.ints)


def test_header_literal_bytes() -> None:
    assert HEADER.encode().hex() == HEADER_RAW.hex()
    assert index_file.decode_header(HEADER_RAW + b"behind") == HEADER


def test_entry_literal_bytes() -> None:
    raw = bytes.fromhex("05e918d200000000000e87cc0000004400000007")
    entry = IndexEntry(99162322, 952268, 68, 7)
    assert entry.encode() == raw
    assert index_file.decode_entry(b"x" + raw, 1) == entry


@given(headers)
def test_headers_go_both_ways(header: IndexHeader) -> None:
    assert index_file.decode_header(header.encode()) == header


@given(entries)
def test_entries_go_both_ways(entry: IndexEntry) -> None:
    import numpy as np

    assert index_file.decode_entry(entry.encode(), 0) == entry
    (row,) = np.frombuffer(entry.encode(), index_file.entry_dtype()).tolist()
    assert IndexEntry(*row) == entry


@pytest.mark.parametrize("count", [0, -5])
def test_a_count_below_one_reads_as_one(count: int) -> None:
    raw = IndexHeader(index_count=count).encode()
    assert index_file.decode_header(raw).index_count == 1


def test_too_few_bytes() -> None:
    with pytest.raises(FormatError):
        index_file.decode_header(HEADER_RAW[:39])
    for position in (-1, 1):
        with pytest.raises(FormatError):
            index_file.decode_entry(bytes(20), position)


def test_layout_of_a_file_with_default_sizes() -> None:
    layout = IndexLayout(5_000_000, 20_000_000)
    assert layout.file_size == 420_000_040
    assert layout.slot_position(0) == 40
    assert layout.slot_position(3) == 52
    assert layout.entries_position == layout.entry_position(0) == 20_000_040
    assert layout.entry_position(1) == 20_000_060


@pytest.mark.parametrize(
    ("stored", "begin", "seconds"),
    [
        (5000, 0, 0),
        (5000, -1, 0),
        (5999, 5000, 0),
        (6000, 5000, 1),
        (4000, 5000, 0),
        (4999, 5000, 0),
        ((1 << 31) * 1000 + 1, 1, (1 << 31) - 1),
        (1 << 62, 1, (1 << 31) - 1),
    ],
)
def test_time_differences(stored: int, begin: int, seconds: int) -> None:
    assert index_file.time_diff(stored, begin) == seconds
