"""Bodies compressed with zlib, LZ4 and Zstandard: both ways, damaged, too large, and without the packages."""

from __future__ import annotations

import sys
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidArgument, NotInstalled
from engine.format import sysflag
from engine.format.compression import (
    INFLATED_MAX,
    CompressionType,
    compression_type,
    deflate,
    demand_type,
    inflate,
)

KINDS = list(CompressionType)
BODY = b"abc" * 5000


@given(st.binary(max_size=5000), st.sampled_from(KINDS), st.sampled_from([1, 5, 9]), st.integers(0, 50))
def test_both_ways(part: bytes, kind: CompressionType, level: int, times: int) -> None:
    body = part * times
    packed = deflate(body, kind, level)
    assert inflate(packed, kind.flags) == body
    assert inflate(memoryview(packed), kind.flags) == body


@given(st.binary(max_size=3000), st.sampled_from(KINDS))
def test_what_is_no_stream_is_none_of_it(junk: bytes, kind: CompressionType) -> None:
    assert inflate(junk, kind.flags) is None


@given(st.sampled_from(KINDS), st.data())
def test_a_part_of_a_stream_is_none(kind: CompressionType, data: st.DataObject) -> None:
    packed = deflate(BODY, kind, 5)
    assert inflate(packed[: data.draw(st.integers(0, len(packed) - 1))], kind.flags) is None


def test_as_java_writes_them() -> None:
    """Zstandard streams that do not tell their length, LZ4 frames that do not either, zlib without bits of a type."""
    stream = zstandard.ZstdCompressor(level=5).compressobj()
    assert inflate(stream.compress(BODY) + stream.flush(), CompressionType.ZSTD.flags) == BODY
    frame = lz4.frame.compress(BODY, store_size=False, block_linked=False)
    assert inflate(frame, CompressionType.LZ4.flags) == BODY
    assert inflate(zlib.compress(BODY), sysflag.COMPRESSED) == BODY


def test_java_reads_lz4_blocks_that_stand_alone() -> None:
    """lz4-java refuses the others (LZ4FrameInputStream): "Dependent block stream is unsupported"."""
    info = lz4.frame.get_frame_info(deflate(BODY, CompressionType.LZ4, 5))
    assert info["block_linked"] is False


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_what_claims_to_be_too_large_is_not_made(kind: CompressionType, told: bool) -> None:
    bomb = bytes(INFLATED_MAX + 1)
    match kind:
        case CompressionType.ZLIB:
            packed = zlib.compress(bomb, 1)
        case CompressionType.LZ4:
            packed = lz4.frame.compress(bomb, store_size=told)
        case CompressionType.ZSTD:
            packed = zstandard.ZstdCompressor(level=1, write_content_size=told).compress(bomb)
    assert len(packed) < 1 << 20
    assert inflate(packed, kind.flags) is None


@pytest.mark.parametrize("bits", [0x400, 0x500, 0x600, 0x700])
def test_types_that_nobody_knows(bits: int) -> None:
    assert compression_type(sysflag.COMPRESSED | bits) is None
    assert inflate(zlib.compress(BODY), sysflag.COMPRESSED | bits) is None


def test_what_is_not_compressed() -> None:
    assert inflate(zlib.compress(BODY), CompressionType.ZLIB.flags & ~sysflag.COMPRESSED) is None


@pytest.mark.parametrize(
    ("kind", "module", "package"), [("lz4", "lz4.frame", "lz4"), ("zstd", "zstandard", "zstandard")]
)
def test_without_its_package(kind: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = deflate(BODY, CompressionType(kind), 5)
    monkeypatch.setitem(sys.modules, module, None)
    words = rf"compressed with {kind} needs {package}, which is not installed \(pip install 'rstore\[compression\]'\)"
    for refused in (
        lambda: inflate(packed, CompressionType(kind).flags),
        lambda: deflate(BODY, CompressionType(kind), 5),
        lambda: demand_type(CompressionType(kind), 5),
    ):
        with pytest.raises(NotInstalled, match=words):
            refused()


@pytest.mark.parametrize(("kind", "level"), [("zlib", 10), ("zlib", -1), ("zstd", 0), ("zstd", 23)])
def test_levels_that_there_are_not(kind: str, level: int) -> None:
    with pytest.raises(InvalidArgument, match=f"{kind} has levels"):
        demand_type(CompressionType(kind), level)
