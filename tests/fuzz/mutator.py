"""Seeded damage to bytes: bits, lengths, cuts, splices."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

INTERESTING = [
    *(bytes.fromhex(number * width) for width in (1, 2, 4, 8) for number in ("00", "ff")),
    *(bytes.fromhex("7f" + "ff" * rest) for rest in (0, 1, 3, 7)),
    *(bytes.fromhex("80" + "00" * rest) for rest in (0, 1, 3, 7)),
    *(number.to_bytes(4, "big") for number in (1, 8, 91, 0xDAA320A7, 0xDAA320AB, 0xCBD43194)),
    *(bytes([code]) for code in b'\x01\x02"\\{},:0\xc3'),
    "🚀".encode(),
    "\ud800".encode("utf-8", "surrogatepass"),
]


def _flip_bit(data: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _overwrite(data: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    value = rng.choice(INTERESTING)
    at = rng.randrange(len(data))
    data[at : at + len(value)] = value[: len(data) - at]


def _insert(data: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(INTERESTING)


def _near_length(data: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    """A number near the length of the data, where a length may stand."""
    size = rng.choice((2, 4))
    at = rng.randrange(len(data))
    value = max(0, len(data) + rng.randrange(-100, 100)) % (1 << 8 * size)
    data[at : at + size] = value.to_bytes(size, "big")[: len(data) - at]


def _cut(data: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    del data[rng.randrange(len(data)) :]


def _remove(data: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.randrange(1, 32)]


def _zero(data: bytearray, rng: random.Random, _: Sequence[bytes]) -> None:
    at = rng.randrange(len(data))
    length = min(rng.randrange(1, 1 + len(data)), len(data) - at)
    data[at : at + length] = bytes(length)


def _splice(data: bytearray, rng: random.Random, seeds: Sequence[bytes]) -> None:
    other = rng.choice(seeds)
    a, b = sorted((rng.randrange(len(other) + 1), rng.randrange(len(other) + 1)))
    at = rng.randrange(len(data))
    data[at : at + rng.choice((0, b - a))] = other[a:b]


_OPS: list[Callable[[bytearray, random.Random, Sequence[bytes]], None]] = [
    _flip_bit,
    _flip_bit,
    _overwrite,
    _overwrite,
    _near_length,
    _insert,
    _cut,
    _remove,
    _zero,
    _splice,
]


def mutate(seeds: Sequence[bytes], rng: random.Random) -> bytes:
    """One of the seeds with one to four mutations; never more than 64 KiB larger than the seeds."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        if not data:
            break
        rng.choice(_OPS)(data, rng, seeds)
    return bytes(data)
