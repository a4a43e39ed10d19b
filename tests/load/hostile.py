"""What a broker must bear: clients that send nonsense, too much, too little, or never read. Raw sockets, one thread."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator

import orjson

from engine.client.heartbeats import heartbeat_body
from engine.wire.codes import RequestCode
from engine.wire.command import RemotingCommand, SerializeType
from engine.wire.frames import MAX_FRAME, encode
from tests.support.wire import Wire, pull_request, put_request

CHUNK = 1 << 16
PATIENCE_S = 60.0
"""How long what the broker does at once is waited for: on a busy machine it, or who asks, may stand still meanwhile."""
_FIXED = struct.Struct(">hBhiii")


def connect(address: str) -> socket.socket:
    """A raw connection."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


@contextlib.contextmanager
def connections(address: str, count: int) -> Iterator[list[socket.socket]]:
    """So many, closed at the end."""
    found: list[socket.socket] = []
    try:
        for _ in range(count):
            found.append(connect(address))
        yield found
    finally:
        for one in found:
            one.close()


def pour(to: socket.socket, data: bytes, seconds: float = PATIENCE_S) -> bool:
    """Send all of it, unless the other side closes or takes nothing for so long; whether all was taken."""
    to.settimeout(seconds)
    try:
        to.sendall(data)
    except OSError:
        return False
    return True


def is_closed(one: socket.socket, seconds: float = PATIENCE_S) -> bool:
    """Whether the other side closes the connection within so long."""
    one.settimeout(seconds)
    try:
        while one.recv(CHUNK):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def frame(code: int, ext: dict[str, str] | None = None, body: bytes = b"", opaque: int = 1) -> bytes:
    """A sound request."""
    return b"".join(encode(RemotingCommand(code, opaque, 0, None, ext, body)))


def with_header(header: bytes, kind: int = 0, body: bytes = b"") -> bytes:
    """A frame with any header."""
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


# --- one by one -------------------------------------------------------------------------------------------------------


def huge_lengths(address: str) -> bool:
    """Lengths of 1 GiB, negative ones, a header longer than its frame: each is closed at once."""
    lengths = [
        struct.pack(">iI", *pair) for pair in ((1 << 30, 100), (-1, 100), (0x7FFFFFFF, 0xFFFFFF), (100, 5000), (3, 0))
    ]
    closed = []
    for data in lengths:
        with contextlib.closing(connect(address)) as one:
            pour(one, data)
            closed.append(is_closed(one))
    return all(closed)


def deep_headers(address: str) -> bool:
    """JSON headers of a million brackets, open or closed, and of a million fields."""
    deep = [b"[" * 1_000_000, b'{"a":' * 500_000, b'{"extFields":' + b"[" * 500_000 + b"]" * 500_000 + b"}"]
    nested = b'{"code":310,"extFields":{"b":' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}}"
    for header in [*deep, nested]:
        with contextlib.closing(connect(address)) as one:
            pour(one, with_header(header))
            pour(one, frame(RequestCode.GET_MAX_OFFSET, {"topic": "x", "queueId": "0"}))
            with contextlib.suppress(OSError):  # closed already
                one.shutdown(socket.SHUT_WR)
            if not is_closed(one):
                return False
    return True


def many_fields(address: str, count: int = 1_000_000) -> bool:
    """A request with a million fields: answered."""
    header = orjson.dumps({"code": 30, "opaque": 5, "extFields": {str(n): "v" for n in range(count)}})[: MAX_FRAME - 8]
    with contextlib.closing(connect(address)) as one, contextlib.suppress(ConnectionError):
        return pour(one, with_header(header)) and bool(one.recv(CHUNK))
    return False


def absurd_binary(address: str) -> bool:
    """Binary headers whose inner lengths say 2 GiB, nothing, or less: closed."""
    big, closed = 0x7FFFFFFF, []
    for remark, ext, rest in (
        (big, 0, b""),
        (0, big, b""),
        (-5, 0, b""),
        (0, 50, b"\x7f\xff"),
        (0, 6, b"\x00\x01a\x7f\xff\xff\xff"),
    ):
        header = _FIXED.pack(10, 0, 409, 1, 0, remark) + struct.pack(">i", ext) + rest
        with contextlib.closing(connect(address)) as one:
            pour(one, with_header(header, SerializeType.ROCKETMQ))
            closed.append(is_closed(one))
    return all(closed)


def never_reads(address: str, topic: str, requests: int = 20_000) -> None:
    """Asks for as much as a pull gives, over and over, and reads none of it."""
    with contextlib.closing(connect(address)) as one:
        ask = frame(*pull_request("never", topic, 0, 0))
        pour(one, ask * requests, 5)
        time.sleep(1)


def slow_frames(address: str, count: int, size: int, seconds: float, enough: int) -> int:
    """So many connections with most of a frame each, then a byte now and then; how many are still there at the end.

    Args:
        enough: so few are counted at once; more are given time to be closed.
    """
    with connections(address, count) as found:
        piece = struct.pack(">iI", MAX_FRAME, 100) + bytes(size - 8)
        alive = [one for one in found if pour(one, piece)]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for one in alive:
                with contextlib.suppress(OSError):
                    one.send(b"x")
            time.sleep(0.1)
        end = time.monotonic() + PATIENCE_S
        while len(alive := [one for one in alive if not is_closed(one, 0.01)]) > enough and time.monotonic() < end:
            continue
        return len(alive)


def half_open(address: str, count: int, connected: Callable[[], object]) -> None:
    """Connections that, once `connected` returns, say they will send no more, and go on reading."""
    with connections(address, count) as found:
        connected()
        for one in found:
            one.shutdown(socket.SHUT_WR)
        time.sleep(1)


def held_pulls(address: str, topic: str, connections_: int, each: int, seconds: float) -> Callable[[], int]:
    """So many pulls that wait, on so many connections; gives how many answers came, and hangs up."""
    found = [connect(address) for _ in range(connections_)]
    for one in found:
        pulls = [
            frame(*pull_request("held", topic, n % 4, 0, wait_ms=int(seconds * 1000)), opaque=n) for n in range(each)
        ]
        pour(one, b"".join(pulls))

    def end() -> int:
        answers = 0
        for one in found:
            one.settimeout(seconds + PATIENCE_S)  # the broker looks at what it holds every 5 s
            with contextlib.suppress(OSError):
                got = b""
                while got.count(b'"opaque"') < each:
                    data = one.recv(CHUNK)
                    if not data:
                        break
                    got += data
                answers += got.count(b'"opaque"')
            one.close()
        return answers

    return end


def groups_heartbeat(address: str, count: int) -> int:
    """One heartbeat with thousands of groups; the answer's code."""
    wanted = [{"topic": "x", "subString": "*", "subVersion": 1}]
    consumers = [{"groupName": f"consumers{n}", "subscriptionDataSet": wanted} for n in range(count)]
    body = heartbeat_body("many", (f"producers{n}" for n in range(count)), consumers)
    with Wire(address, 120) as client:
        return client.ask(RequestCode.HEART_BEAT, None, body).code


def topics_sent_to(address: str, count: int) -> dict[int, int]:
    """Sends to so many topics that there aren't, all in one go; how many answers of each code."""
    with Wire(address, 120) as client:
        answers = client.ask_all([put_request(f"garbage{n}", 0, b"x") for n in range(count)])
    return Counter(answer.code for answer in answers)


def large_bodies(address: str) -> list[int]:
    """Heartbeats of 15.75 and of 4 MiB that are no JSON, or little more than brackets; the answers' codes."""
    words = b'{"a":[' + b'"x",' * 1_000_000 + b'""]}'
    bodies = [b'{"a":"b",' * (14 << 17), b"{1:2," * 800_000, words, b"[" * (3 << 20)]
    with Wire(address, 60) as client:
        return [client.ask(RequestCode.HEART_BEAT, None, body).code for body in bodies]
