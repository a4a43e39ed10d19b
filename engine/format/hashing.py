"""The hashes of the store: CRC-32 of bodies, Java's String.hashCode of tags and keys.

CRC: crcmod's predefined "crc-32" is the definition (tests hold the two equal); `zlib.crc32` computes the same
polynomial and is what runs, as it needs no table in Python and releases the GIL on large bodies.

Java hashCode: h = 31·h + unit over UTF-16 code units, wrapped to a signed 32-bit int. `java_hashes` does it for many
strings at once: strings of one length are one matrix product with the powers of 31 modulo 2³².
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from engine.format.numbers import INT_MAX

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.format.buffers import Buffer

CRC_MASK: Final = 0x7FFFFFFF
"""A CRC is stored with its sign bit cleared. Source: UtilAll#crc32."""
_MASK32 = 0xFFFFFFFF
_FEW = 8
"""Keys that are hashed one by one: faster than making arrays of them."""
TAG_MARK: Final = "T#"
"""After topic + "#", before a tag. Source: MessageConst.INDEX_TAG_TYPE (5.4.0)."""


def body_crc(body: Buffer) -> int:
    """CRC-32 of a body as a record stores it: the sign bit cleared; 0 for an empty body.

    Source: UtilAll#crc32, FORMAT.md "Record".
    """
    return zlib.crc32(body) & CRC_MASK


def java_hash(text: str, before: int = 0) -> int:
    """Java's String.hashCode, a signed 32-bit int. `before`: that of a text before this one, to hash both."""
    h = before & _MASK32
    if text.isascii():
        for unit in text.encode("ascii"):
            h = (h * 31 + unit) & _MASK32
    else:
        units = java_order(text)
        for i in range(0, len(units), 2):
            h = (h * 31 + (units[i] << 8 | units[i + 1])) & _MASK32
    return h - (1 << 32) if h & 0x80000000 else h


def java_order(text: str) -> bytes:
    """What sorts texts as String#compareTo does: by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def tags_code(tags: str | None) -> int:
    """The tagsCode of a queue unit: the hash of TAGS, 0 without. Source: MessageExtBrokerInner#tagsString2tagsCode."""
    return java_hash(tags) if tags else 0


def tag_index_key(topic: str, tag: str) -> str:
    """The index key string of a tag, which RocketMQ 5.4 and later put. Source: IndexService#buildIndex (5.4.0)."""
    return f"{topic}#{TAG_MARK}{tag}"


def index_key_hash(key: str) -> int:
    """Hash of an index key string (topic + "#" + key), 0 ≤ h < 2³¹: |hashCode|, and 0 for Integer.MIN_VALUE.

    Source: IndexFile#indexKeyHashMethod.
    """
    h = abs(java_hash(key))
    return 0 if h == 1 << 31 else h


def message_key_hash(topic: str, key: str) -> int:
    """`index_key_hash` of a message's key, as queries for it need it."""
    return key_hash_of(java_hash(key, topic_hash(topic)) & _MASK32)


def key_hash_of(bits: int) -> int:
    """The hash in the index of a key whose Java hash has these 32 bits."""
    return bits if bits <= INT_MAX else ((1 << 32) - bits) & INT_MAX


@functools.lru_cache(maxsize=1024)
def topic_hash(topic: str) -> int:
    """The bits of the Java hash of what all keys of a topic begin with."""
    return java_hash(f"{topic}#") & _MASK32


def java_hashes(texts: Sequence[str]) -> NDArray[np.int32]:
    """`java_hash` of many strings at once.

    Returns:
        int32[len(texts)].
    """
    import numpy as np

    out = np.empty(len(texts), dtype=np.int32)
    by_length: dict[int, list[int]] = {}
    for i, text in enumerate(texts):
        if text.isascii():
            by_length.setdefault(len(text), []).append(i)
        else:
            out[i] = java_hash(text)
    for length, places in by_length.items():
        if length == 0:
            out[places] = 0
            continue
        joined = "".join([texts[i] for i in places]).encode("ascii")
        units = np.frombuffer(joined, dtype=np.uint8).reshape(len(places), length).astype(np.uint32)
        out[places] = (units * _powers(length)).sum(axis=1, dtype=np.uint32).view(np.int32)
    return out


@functools.lru_cache(maxsize=256)
def _powers(length: int) -> NDArray[np.uint32]:
    """31 to the power of length - 1, …, 1, 0, modulo 2³²."""
    import numpy as np

    return np.array([pow(31, length - 1 - k, 1 << 32) for k in range(length)], dtype=np.uint32)


def index_key_hashes(keys: Sequence[str]) -> NDArray[np.int32]:
    """`index_key_hash` of many key strings at once: int32[len(keys)], all ≥ 0."""
    import numpy as np

    if len(keys) < _FEW:
        return np.array([index_key_hash(key) for key in keys], dtype=np.int32)
    wide = np.abs(java_hashes(keys).astype(np.int64))
    wide[wide == 1 << 31] = 0
    return wide.astype(np.int32)
