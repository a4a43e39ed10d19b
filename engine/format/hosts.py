"""Host addresses in a record: 4 or 16 bytes of IP and an i32 port."""

from __future__ import annotations

import ipaddress
import struct
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import FormatError, InvalidArgument
from engine.format.numbers import parse_int

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

_PORT = struct.Struct(">i")
V4_SIZE = 8
V6_SIZE = 20
IP_SIZES = (V4_SIZE - _PORT.size, V6_SIZE - _PORT.size)
"""Bytes of an IP address."""


@dataclass(frozen=True, slots=True)
class Host:
    """An address: `ip` is 4 or 16 bytes, `port` a signed 32-bit int as stored."""

    ip: bytes
    port: int

    @property
    def is_v6(self) -> bool:
        """Whether it takes 20 bytes in a record, and a sysFlag bit."""
        return len(self.ip) == 16

    def encode(self) -> bytes:
        """The 8 or 20 bytes."""
        return self.ip + _PORT.pack(self.port)

    def __str__(self) -> str:
        if not self.is_v6:
            return f"{'.'.join(map(str, self.ip))}:{self.port}"
        return f"[{ipaddress.ip_address(self.ip)}]:{self.port}"


LOOPBACK = Host(b"\x7f\x00\x00\x01", 0)


def host_size(is_v6: bool) -> int:
    """Bytes that a host takes in a record."""
    return V6_SIZE if is_v6 else V4_SIZE


def decode(buffer: Buffer, position: int, is_v6: bool) -> Host:
    """The host at `position`.

    Raises:
        FormatError: not enough bytes are there.
    """
    size = host_size(is_v6)
    if position < 0 or len(buffer) - position < size:
        raise FormatError(f"a host needs {size} bytes", offset=position)
    ip_end = position + size - _PORT.size
    return Host(bytes(buffer[position:ip_end]), _PORT.unpack_from(buffer, ip_end)[0])


def parse(text: str) -> Host:
    """The host that `ip:port`, `[ip6]:port` or `ip|port` stands for.

    Raises:
        InvalidArgument: it is none.
    """
    address, bar, port = text.rpartition("|") if "|" in text else text.rpartition(":")
    try:
        if not bar:
            raise ValueError(text)
        return Host(ipaddress.ip_address(address.strip("[]")).packed, parse_int(port))
    except ValueError:
        raise InvalidArgument(f"invalid host: {text!r}", hint="write 192.0.2.1:10911 or [2001:db8::1]:10911") from None


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
