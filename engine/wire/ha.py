"""The replication protocol of a master and its slave, sans-I/O (REMOTING.md 3; HAConnection, HAClient of 4.9.8).

    slave → master    8 bytes     physical offset up to which the slave has the log; the first one says where to begin
    master → slave    12 bytes    physical offset i8, size i4; then `size` bytes of the log, none in a heartbeat

There is no greeting, no version and no name: who connects is a slave, and sends first. Under a controller of RocketMQ 5
it is another protocol: ha_controller.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from engine.errors import FormatError

HEADER = struct.Struct(">qi")
ACK = struct.Struct(">q")
_LAST = (1 << 63) - 1
MAX_BODY = (4 << 20) - HEADER.size
"""The largest body that a slave of Apache's can take, bytes. Source: HAClient#READ_MAX_BUFFER_SIZE."""


class BadTransfer(FormatError):
    """Bytes that are no transfer: the connection is closed. `offset` counts the bytes of the connection."""


class Transfer(NamedTuple):
    """A piece of the log, which may begin and end within a record; empty: a heartbeat.

    Attributes:
        offset: physical, of the first byte; in a heartbeat, of the byte that comes next.
        body: the bytes.
    """

    offset: int
    body: bytes | memoryview

    @property
    def end(self) -> int:
        """Physical offset after it."""
        return self.offset + len(self.body)


def encode_header(offset: int, size: int) -> bytes:
    """What goes before `size` bytes of the log at `offset`."""
    return HEADER.pack(offset, size)


def encode_ack(offset: int) -> bytes:
    """A slave's report."""
    return ACK.pack(offset)


class TransferReader:
    """A slave's side: takes bytes as they come, gives what they carry, without a copy and without waiting for the rest.

    Args:
        max_body: the largest body that is taken, bytes.
    """

    __slots__ = ("_head", "_left", "_max_body", "_next", "_seen")

    header_size: ClassVar[int] = HEADER.size
    """Bytes before the body."""

    def __init__(self, max_body: int = MAX_BODY) -> None:
        self._head = b""
        self._next = self._left = self._seen = 0
        self._max_body = max_body

    @property
    def within(self) -> bool:
        """Whether a transfer has begun and is not whole yet."""
        return bool(self._head or self._left)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Transfer]:
        """What these bytes carry: transfers, or as much of one as is here. Bodies are views of `data`.

        To be iterated to its end before the next call.

        Raises:
            BadTransfer: nothing more can be read from this connection.
        """
        view = memoryview(data)
        at, end = 0, len(view)
        while at < end:
            if self._left:
                body = view[at : at + self._left]
                offset = self._next
                self._next += len(body)
                self._left -= len(body)
                at += len(body)
                yield Transfer(offset, body)
                continue
            take = min(self.header_size - len(self._head), end - at)
            self._head += view[at : at + take]
            at += take
            if len(self._head) == self.header_size:
                place, self._head = self.read_header(self._head), b""
                if place is None:
                    continue
                offset, size = place
                if offset < 0 or not 0 <= size <= self._max_body or offset + size > _LAST:
                    raise BadTransfer(
                        f"invalid transfer of {size} bytes at offset {offset}: at most {self._max_body} bytes",
                        offset=self._seen + at - self.header_size,
                    )
                self._next, self._left = offset, size
                if not size:
                    yield Transfer(offset, b"")
        self._seen += end

    def read_header(self, head: bytes) -> tuple[int, int] | None:
        """The offset and size of a transfer; None: it carries nothing. Raises BadTransfer."""
        offset, size = HEADER.unpack(head)
        return offset, size


def joined(transfers: Iterator[Transfer]) -> Iterator[Transfer]:
    """The same, where one goes on at the end of another with one body: what each of them costs is paid once.

    Raises BadTransfer: after all that came before it.
    """
    bodies: list[bytes | memoryview] = []
    start = end = 0
    fault: BadTransfer | None = None
    while True:
        try:
            transfer = next(transfers, None)
        except BadTransfer as error:
            transfer, fault = None, error
        if bodies and (transfer is None or transfer.offset != end or not transfer.body):
            yield Transfer(start, bodies[0] if len(bodies) == 1 else b"".join(bodies))
            bodies = []
        if transfer is None:
            break
        if not transfer.body:
            yield transfer
            continue
        if not bodies:
            start = transfer.offset
        bodies.append(transfer.body)
        end = transfer.end
    if fault is not None:
        raise fault


class AckReader:
    """A master's side: takes bytes as they come, gives the newest whole report."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """The last report that is whole with these bytes, None when none is. Raises BadTransfer: a negative one."""
        data = self._rest + data
        whole = len(data) // ACK.size * ACK.size
        self._rest = data[whole:]
        if not whole:
            return None
        (offset,) = ACK.unpack_from(data, whole - ACK.size)
        if offset < 0:
            raise BadTransfer(f"slave reported an invalid offset {offset}")
        return int(offset)
