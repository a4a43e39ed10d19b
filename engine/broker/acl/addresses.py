"""Patterns of addresses: whiteRemoteAddress, globalWhiteRemoteAddresses.

    (blank)                    nobody
    *  *.*.*.*  *:*:*:*:*:*:*:*  everybody
    192.168.0.7                one, IPv4 or IPv6
    192.168.0.{7,9}  fe80::{1,2}  some that share a beginning
    192.168.0.7,192.168.0.9    some
    192.168.1-3.*  2::ac5:78:1-200:*  parts that vary: * or from-to (IPv6: hexadecimal)

Source: RemoteAddressStrategyFactory, AclUtils.
"""

from __future__ import annotations

import ipaddress
import re

from engine.dataclass import dataclass

_ANYBODY = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_RANGE = re.compile(r"([0-9a-fA-F]+)-([0-9a-fA-F]+)")
_Part = tuple[int, int]


class BadPattern(ValueError):
    """What was said is no pattern of addresses."""


@dataclass(frozen=True, slots=True)
class AddressPattern:
    """One pattern.

    Attributes:
        everybody: whether all match.
        addresses: that match, each as its packed bytes.
        parts: of an address that matches, from-to each; 4 of 8 bits, or 8 of 16; empty: none.
    """

    everybody: bool = False
    addresses: frozenset[bytes] = frozenset()
    parts: tuple[_Part, ...] = ()

    def matches(self, packed: bytes) -> bool:
        """Whether an address, as its 4 or 16 bytes, is meant; b"" is none."""
        if self.everybody:
            return True
        if packed in self.addresses:
            return True
        if not self.parts or not packed:
            return False
        parts = packed if len(packed) == 4 else [int.from_bytes(packed[i : i + 2], "big") for i in range(0, 16, 2)]
        return len(parts) == len(self.parts) and all(
            low <= one <= high for one, (low, high) in zip(parts, self.parts, strict=True)
        )


NOBODY = AddressPattern()


def parse(text: str | None) -> AddressPattern:
    """The pattern of a text. Raises BadPattern."""
    text = (text or "").strip()
    if not text:
        return NOBODY
    if text in _ANYBODY:
        return AddressPattern(everybody=True)
    if text.endswith("}"):
        head, brace, tail = text.partition("{")
        if not brace or not head.endswith((".", ":")):
            raise BadPattern(f"{text!r}: only the last part of an address can be a choice in braces")
        return AddressPattern(addresses=frozenset(pack(head + one.strip()) for one in tail[:-1].split(",") if one))
    if "," in text:
        return AddressPattern(addresses=frozenset(pack(one.strip()) for one in text.split(",") if one.strip()))
    if "*" in text or "-" in text:
        return AddressPattern(parts=_parts(text))
    return AddressPattern(addresses=frozenset((pack(text),)))


def pack(text: str) -> bytes:
    """An address as its bytes. Raises BadPattern."""
    try:
        return ipaddress.ip_address(text).packed
    except ValueError:
        raise BadPattern(f"{text!r} is not an IP address") from None


def _parts(text: str) -> tuple[_Part, ...]:
    if ":" not in text:
        parts = text.split(".")
        if len(parts) != 4:
            raise BadPattern(f"{text!r}: an address must have four parts")
        return tuple(_part(text, part, 10, 0xFF) for part in parts)
    parts = text.split(":")
    if "::" in text:
        if text.count("::") > 1 or ":::" in text:
            raise BadPattern(f"{text!r}: :: must occur only once")
        head, _, tail = text.partition("::")
        before, after = [one for one in head.split(":") if one], [one for one in tail.split(":") if one]
        parts = [*before, *["0"] * (8 - len(before) - len(after)), *after]
    if len(parts) != 8:
        raise BadPattern(f"{text!r}: an address must have eight parts")
    return tuple(_part(text, part, 16, 0xFFFF) for part in parts)


def _part(text: str, part: str, base: int, most: int) -> _Part:
    part = part.strip()
    if part == "*":
        return 0, most
    match = _RANGE.fullmatch(part)
    low, high = match.groups() if match else (part, part)
    try:
        made = int(low, base), int(high, base)
    except ValueError:
        raise BadPattern(f"{text!r}: {part!r} is not a part of an address") from None
    if not 0 <= made[0] <= made[1] <= most:
        raise BadPattern(f"{text!r}: {part!r} is out of range")
    return made
