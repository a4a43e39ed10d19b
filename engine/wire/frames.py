"""A stream of bytes cut into frames (remoting.md 1; NettyDecoder, RemotingCommand#decode), and commands made frames.

    total length i4 · serialise type i1, header length i3 · header · body        total length counts what follows it

Every length is judged as soon as it is there, before anything behind it is kept: a peer can make us hold no more than
one frame of `MAX_FRAME` bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from engine.errors import FormatError
from engine.wire.command import RemotingCommand, decode_header, encode_header

MAX_FRAME = 16 << 20
"""The largest total length. Source: com.rocketmq.remoting.frameMaxLength."""
MAX_HEADER = 1 << 20
"""The largest header, bytes: the longest properties that a message may have, each character escaped, take a fifth of it.
Apache takes what the frame takes, and a header of a million fields costs it a thread; us it would cost the loop."""
TLS_HELLO = 0x16
"""The first byte of a connection that wants TLS. Source: NettyRemotingServer, HandshakeHandler."""
_LENGTHS = struct.Struct(">iI")
_PREFIX = 4
_HEADER_BITS = 24
_HEADER_MASK = (1 << _HEADER_BITS) - 1


class BadFrame(FormatError):
    """Bytes that are no frame: the connection is closed. `offset` counts the bytes of the connection."""


class FrameReader:
    """Takes the bytes of one connection as they come, gives commands.

    Args:
        max_frame: the largest total length that is taken, bytes.
    """

    __slots__ = ("_buffer", "_max_frame", "_seen", "_start")

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._buffer = bytearray()
        self._start = 0
        self._seen = 0
        self._max_frame = max_frame

    @property
    def held(self) -> int:
        """Bytes that are kept because their frame is not whole yet."""
        return len(self._buffer) - self._start

    @property
    def wanted(self) -> int:
        """Bytes that the frame under way takes in all; 0 when its length isn't there yet."""
        if self.held < _PREFIX:
            return 0
        return _PREFIX + int.from_bytes(self._buffer[self._start : self._start + _PREFIX], "big")

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[RemotingCommand]:
        """The commands that are whole with these bytes. To be iterated to its end before the next call.

        Raises:
            BadFrame, BadHeader: nothing more can be read from this connection.
        """
        buffer = self._buffer
        buffer += data
        while len(buffer) - self._start >= _PREFIX:
            start = self._start
            total = int.from_bytes(buffer[start : start + _PREFIX], "big", signed=True)
            if not _PREFIX <= total <= self._max_frame:
                raise BadFrame(
                    f"a frame of {total} bytes, {_PREFIX} to {self._max_frame} are possible", offset=self._seen
                )
            if len(buffer) - start < 2 * _PREFIX:
                break
            kind = int.from_bytes(buffer[start + _PREFIX : start + 2 * _PREFIX], "big")
            length = kind & _HEADER_MASK
            if length > total - _PREFIX or length > MAX_HEADER:
                raise BadFrame(f"a header of {length} bytes in a frame of {total}, at most {MAX_HEADER} are possible", offset=self._seen + _PREFIX)
            end = start + _PREFIX + total
            if len(buffer) < end:
                break
            at = start + 2 * _PREFIX
            header, body = bytes(buffer[at : at + length]), bytes(buffer[at + length : end])
            self._start = end
            self._seen += _PREFIX + total
            yield decode_header(header, kind >> _HEADER_BITS, body)
        if self._start:
            del buffer[: self._start]
            self._start = 0


def encode(command: RemotingCommand) -> tuple[bytes, bytes | memoryview]:
    """A frame, as its head and its body: the body is not copied.

    Raises:
        FormatError: a header or a body that no frame can hold.
    """
    header = encode_header(command)
    total = _PREFIX + len(header) + len(command.body)
    if len(header) > _HEADER_MASK or total > MAX_FRAME:
        raise FormatError(f"a frame of {total} bytes: {MAX_FRAME} are possible")
    return _LENGTHS.pack(total, command.serialize << _HEADER_BITS | len(header)) + header, command.body
