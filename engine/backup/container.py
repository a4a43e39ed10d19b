"""The bytes of one object: a header, then what it holds, compressed and, in an encrypted repository, sealed.

| at | bytes | what |
|---|---|---|
| 0 | 4 | `RSTB` |
| 4 | 1 | version: 1 |
| 5 | 1 | kind: 1 piece, 2 segment, 3 snapshot, 4 archived segment |
| 6 | 1 | compression: 0 none, 1 zstd |
| 7 | 1 | encryption: 0 none, 1 AES-256-GCM |
| 8 | 4 | length of what it holds, bytes, big-endian |
| 12 | 12 | nonce; zeros where nothing is encrypted |
| 24 | … | the payload; of AES-GCM the tag is its last 16 bytes |

Header and name are what AES-GCM authenticates beside the payload: an object under another's name does not open.
"""

from __future__ import annotations

import os
import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from engine.errors import FormatError, NotInstalled

if TYPE_CHECKING:
    from engine.files.raw_file import Bytes

_HEAD = struct.Struct(">4sBBBBI12s")
HEAD_SIZE = _HEAD.size
MAGIC = b"RSTB"
VERSION = 1
LARGEST_PLAIN = 64 << 20
"""Bytes that an object holds at most: what a header claims beyond is not believed."""
_PLAIN, _ZSTD = 0, 1
_OPEN, _AES_GCM = 0, 1
_NONCE = 12
_LEVEL = 3
_WORTH = 64
"""Bytes that compression has to save."""


class Kind(IntEnum):
    """What an object is."""

    PIECE = 1
    SEGMENT = 2
    SNAPSHOT = 3
    ARCHIVED = 4


class Container:
    """Packs and unpacks objects. Thread-safe.

    Args:
        seal_key: 32 bytes that objects are encrypted with; None: they are not.

    Raises:
        NotInstalled: a package that this needs is not there.
    """

    def __init__(self, seal_key: bytes | None) -> None:
        try:
            import zstandard
        except ImportError:
            raise NotInstalled("backups need the package zstandard", hint="pip install 'rstore[backup]'") from None
        self._zstd = zstandard
        self._cipher: Any = None
        if seal_key is not None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._cipher = AESGCM(seal_key)

    def pack(self, kind: Kind, name: str, plain: Bytes) -> bytes:
        """The object `name` that holds `plain`."""
        packed = self._zstd.ZstdCompressor(level=_LEVEL).compress(plain)
        compression: int = _ZSTD
        if len(packed) + _WORTH > len(plain):
            packed, compression = bytes(plain), _PLAIN
        encryption = _OPEN if self._cipher is None else _AES_GCM
        nonce = bytes(_NONCE) if self._cipher is None else os.urandom(_NONCE)
        head = _HEAD.pack(MAGIC, VERSION, kind, compression, encryption, len(plain), nonce)
        if self._cipher is not None:
            packed = self._cipher.encrypt(nonce, packed, head + name.encode())
        return head + packed

    def unpack(self, kind: Kind, name: str, data: bytes, where: str) -> bytes:
        """What the object `name` holds.

        Raises:
            FormatError: it is no such object, damaged, or another object's bytes.
        """
        if len(data) < HEAD_SIZE:
            raise FormatError(f"the object has {len(data)} bytes, fewer than its header", path=where)
        magic, version, its_kind, compression, encryption, length, nonce = _HEAD.unpack_from(data)
        if magic != MAGIC or its_kind != kind:
            raise FormatError(f"not an object of kind {kind.name.lower()}", path=where, offset=0)
        if version != VERSION:
            raise FormatError(f"object version {version}: a newer rstore reads it", path=where, offset=4)
        if compression not in (_PLAIN, _ZSTD) or length > LARGEST_PLAIN:
            raise FormatError("the object's header is damaged", path=where, offset=6)
        if (encryption == _AES_GCM) != (self._cipher is not None):
            raise FormatError("encrypted otherwise than the repository", path=where, offset=7)
        payload: bytes | memoryview = memoryview(data)[HEAD_SIZE:]
        if self._cipher is not None:
            from cryptography.exceptions import InvalidTag

            try:
                payload = self._cipher.decrypt(nonce, payload, data[:HEAD_SIZE] + name.encode())
            except InvalidTag:
                raise FormatError("the object is damaged, or another one's", path=where) from None
        if compression == _ZSTD:
            try:
                if self._zstd.frame_content_size(payload) != length:  # it would be believed
                    raise FormatError("the object's header is damaged", path=where, offset=8)
                payload = self._zstd.ZstdDecompressor().decompress(payload)
            except self._zstd.ZstdError as error:
                raise FormatError(f"the object is damaged: {error}", path=where) from None
        if len(payload) != length:
            raise FormatError(f"the object holds {len(payload)} bytes instead of {length}", path=where)
        return bytes(payload)
