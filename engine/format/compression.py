"""Bodies that a producer has compressed: sysFlag says that they are, and since 4.9.3 with what (MessageSysFlag).

zlib is Python's own. LZ4 (frames) and Zstandard, which Apache's clients know since 4.9.3, need the packages of
`rstore[compression]`: they are imported where such a body comes.
"""

from __future__ import annotations

import enum
import importlib
import zlib
from typing import TYPE_CHECKING, Any

from engine.errors import InvalidArgument, NotInstalled
from engine.format import sysflag

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

INFLATED_MAX = 64 << 20
"""Bytes of a body that are made at most: a few bytes can claim to be many."""


class CompressionType(enum.StrEnum):
    """What a body is compressed with. Source: CompressionType."""

    ZLIB = "zlib"
    LZ4 = "lz4"
    ZSTD = "zstd"

    @property
    def flags(self) -> int:
        """Its bits of sysFlag."""
        return sysflag.COMPRESSED | _BITS[self]


_BITS = {
    CompressionType.ZLIB: sysflag.COMPRESSION_ZLIB,
    CompressionType.LZ4: sysflag.COMPRESSION_LZ4,
    CompressionType.ZSTD: sysflag.COMPRESSION_ZSTD,
}
_TYPES = {0: CompressionType.ZLIB} | {bits: kind for kind, bits in _BITS.items()}
"""Clients before 4.9.3 write no bits."""
_LEVELS = {CompressionType.ZLIB: range(10), CompressionType.ZSTD: range(1, 23)}
"""LZ4 has no levels: Apache's clients take no notice of theirs."""
_PACKAGES = {CompressionType.LZ4: ("lz4", "lz4.frame"), CompressionType.ZSTD: ("zstandard", "zstandard")}
"""The package, and the module of it."""


def compression_type(sys_flag: int) -> CompressionType | None:
    """What a body is compressed with; None: it is not, or nobody knows with what."""
    if not sys_flag & sysflag.COMPRESSED:
        return None
    return _TYPES.get(sys_flag & sysflag.COMPRESSION_TYPE_MASK)


def demand_type(kind: CompressionType, level: int) -> None:
    """Refuse what bodies can't be compressed with.

    Raises:
        NotInstalled: the type needs a package. InvalidArgument: it has no such level.
    """
    if kind in _PACKAGES:
        _module(kind)
    levels = _LEVELS.get(kind)
    if levels is not None and level not in levels:
        raise InvalidArgument(f"{kind} has levels {levels[0]} to {levels[-1]}, not {level}")


def demand_package(sys_flag: int) -> None:
    """Raises NotInstalled: a body with this sysFlag needs a package to be decompressed."""
    kind = compression_type(sys_flag)
    if kind in _PACKAGES:
        _module(kind)


def deflate(body: bytes, kind: CompressionType, level: int) -> bytes:
    """The body, compressed as Apache's clients do. Raises NotInstalled: the type needs a package."""
    match kind:
        case CompressionType.ZLIB:
            return zlib.compress(body, level)
        case CompressionType.LZ4:  # Java's reader takes no blocks that need the ones before them
            packed: bytes = _module(kind).compress(body, block_linked=False)
        case CompressionType.ZSTD:
            packed = _module(kind).ZstdCompressor(level=level).compress(body)
    return packed


def inflate(body: Buffer, sys_flag: int) -> bytes | None:
    """The body as the producer gave it.

    None when it isn't compressed, is not what its sysFlag says, or is larger than INFLATED_MAX.

    Raises:
        NotInstalled: its type needs a package.
    """
    match compression_type(sys_flag):
        case None:
            return None
        case CompressionType.ZLIB:
            return _inflate_zlib(body)
        case CompressionType.LZ4:
            return _inflate_lz4(body, _module(CompressionType.LZ4))
        case CompressionType.ZSTD:
            return _inflate_zstd(body, _module(CompressionType.ZSTD))


def _inflate_zlib(body: Buffer) -> bytes | None:
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(body, INFLATED_MAX)
    except zlib.error:
        return None
    return plain if unpacker.eof else None


def _inflate_lz4(body: Buffer, frame: Any) -> bytes | None:
    unpacker = frame.LZ4FrameDecompressor()
    try:
        plain: bytes = unpacker.decompress(body, INFLATED_MAX)
    except RuntimeError:  # the library has no error of its own
        return None
    return plain if unpacker.eof else None


def _inflate_zstd(body: Buffer, zstandard: Any) -> bytes | None:
    try:
        if zstandard.frame_content_size(body) > INFLATED_MAX:  # else the library makes as many as a frame claims
            return None
        plain: bytes = zstandard.ZstdDecompressor().decompress(body, max_output_size=INFLATED_MAX)
    except zstandard.ZstdError:
        return None
    return plain


def _module(kind: CompressionType) -> Any:
    package, module = _PACKAGES[kind]
    try:
        return importlib.import_module(module)
    except ImportError:
        hint = "pip install 'rstore[compression]'"
        raise NotInstalled(
            f"a body that is compressed with {kind} needs {package}, which is not installed", hint=hint
        ) from None
