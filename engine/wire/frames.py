"""A stream of bytes cut into frames (REMOTING.md 1; NettyDecoder, RemotingCommand#decode), and commands made frames.

    total length i4 · serialise type i1, header length i3 · header · body        total length counts what follows it

Every length is judged as soon as it is there, before anything after it is kept: a peer can make us hold no more than
one frame of `MAX_FRAME` bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

from engine.errors import FormatError
from engine.wire.codes import V4_9_8
from engine.wire.command import RemotingCommand, decode_header, encode_header

MAX_FRAME = 16 << 20
"""The largest total length. Source: com.rocketmq.remoting.frameMaxLength."""
MAX_HEADER = 1 << 20
"""The largest header, bytes: the longest properties of a message, with each character escaped, take a fifth of it.
Apache takes what the frame takes; a million fields cost it a thread for a second, and would cost us everybody."""
TLS_HELLO = 0x16
"""The first byte of a connection that wants TLS. Source: NettyRemotingServer, HandshakeHandler."""
_LENGTHS = struct.Struct(">iI")
_TOTAL = struct.Struct(">i")
_PREFIX = 4
_HEADER_BITS = 24
_HEADER_MASK = (1 << _HEADER_BITS) - 1


class BadFrame(FormatError):
    """Bytes that are no frame: the connection is closed. `offset` counts the bytes of the connection."""


class FrameReader:
    """Takes the bytes of one connection as they come, gives commands.

    Args:
        max_frame: the largest total length that is taken, bytes.
        decode: makes commands, as `decode_header`.
    """

    __slots__ = ("_buffer", "_decode", "_max_frame", "_seen", "_wanted")

    def __init__(
        self, max_frame: int = MAX_FRAME, decode: Callable[[bytes, int, bytes], RemotingCommand] = decode_header
    ) -> None:
        self._decode = decode
        self._buffer = bytearray()
        self._seen = 0
        self._wanted = 0
        self._max_frame = max_frame

    @property
    def held(self) -> int:
        """Bytes that are kept because their frame is not whole yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[RemotingCommand]:
        """The commands that are whole with these bytes. To be iterated to its end before the next call.

        Raises:
            BadFrame, BadHeader: nothing more can be read from this connection.
        """
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < self._wanted:
                return
            data = bytes(buffer)
            buffer.clear()
        elif type(data) is not bytes:
            data = bytes(data)
        start, size, most = 0, len(data), self._max_frame
        while size - start >= 2 * _PREFIX:
            total, kind = _LENGTHS.unpack_from(data, start)
            length = kind & _HEADER_MASK
            if not (_PREFIX <= total <= most and length <= total - _PREFIX and length <= MAX_HEADER):
                self._judge(total, length)
            at = start + 2 * _PREFIX
            end = start + _PREFIX + total
            if end > size:
                break
            self._seen += _PREFIX + total
            start = end
            yield self._decode(data[at : at + length], kind >> _HEADER_BITS, data[at + length : end])
        self._keep(data, start)

    def _judge(self, total: int, length: int) -> None:
        if not _PREFIX <= total <= self._max_frame:
            raise BadFrame(f"invalid frame length {total}: must be {_PREFIX} to {self._max_frame}", offset=self._seen)
        if length > total - _PREFIX or length > MAX_HEADER:
            raise BadFrame(
                f"invalid header length {length} in a frame of {total} bytes: at most {MAX_HEADER}",
                offset=self._seen + _PREFIX,
            )

    def _keep(self, data: bytes, start: int) -> None:
        """Keep the beginning of a frame, and how many bytes its next step takes."""
        left = len(data) - start
        self._wanted = 0
        if left >= _PREFIX:
            (total,) = _TOTAL.unpack_from(data, start)
            self._judge(total, 0)
            self._wanted = _PREFIX + total if left >= 2 * _PREFIX else 2 * _PREFIX
        if left:
            self._buffer += memoryview(data)[start:]


def encode(command: RemotingCommand) -> tuple[bytes, bytes | memoryview]:
    """A frame, as its head and its body: the body is not copied.

    Raises:
        FormatError: a header or a body that no frame can hold.
    """
    header = encode_header(command)
    total = _PREFIX + len(header) + len(command.body)
    if len(header) > _HEADER_MASK or total > MAX_FRAME:
        raise FormatError(f"frame is too long: {total} bytes, at most {MAX_FRAME}")
    return _LENGTHS.pack(total, command.serialize << _HEADER_BITS | len(header)) + header, command.body


STORED_PIECES: Final = (
    b'{"code":0,"extFields":{"MSG_REGION":"DefaultRegion","TRACE_ON":"true","msgId":"',
    b'","queueId":"',
    b'","queueOffset":"',
    b'"},"flag":1,"language":"JAVA","opaque":',
    b',"serializeTypeCurrentRPC":"JSON","version":%d}' % V4_9_8,
)
"""What stands around the id, queue id and queue offset of a stored message, and the opaque, in an answer's header."""


def stored_frame(opaque: int, msg_id: str, queue_id: int, queue_offset: int) -> bytes:
    """The JSON frame that answers a send whose message is stored: as `encode` makes it, at a fraction of its cost.

    `msg_id` needs no escapes.
    """
    values = (msg_id, queue_id, queue_offset, opaque)
    header = b"".join([piece + str(value).encode("ascii") for piece, value in zip(STORED_PIECES, values, strict=False)])
    header += STORED_PIECES[-1]
    return _LENGTHS.pack(_PREFIX + len(header), len(header)) + header
