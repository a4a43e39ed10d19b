"""Frames and headers, good and bad."""

from __future__ import annotations

import asyncio
import struct

from engine.wire.codes import RequestCode as Code
from engine.wire.command import RemotingCommand
from engine.wire.frames import encode
from tests.compat.conversation import say
from tests.compat.conversation.talk import NOTHING_S, Talk


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    """A frame of any header."""
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


async def wire(talk: Talk) -> None:
    """See the module."""
    peer = await talk.peer("wire")
    await peer.ask("wire: unknown code", 9999)
    await peer.ask("wire: unknown code, binary", 9999, {"a": "b"}, kind=1)
    await peer.ask("wire: code 0", 0)
    await peer.ask("wire: negative code", -7)
    for code in (22, 23, 27, 40, 220, 326):
        await peer.ask(f"wire: code {code}, none of a broker's", code)
    await peer.tell("wire: one-way unknown code", 9999)
    await peer.tell("wire: one-way known code", Code.GET_MAX_OFFSET, {"topic": "Any", "queueId": 0})
    ext = {"topic": "WireTopic", "queueId": 0}
    await peer.ask("wire: binary header", Code.GET_MAX_OFFSET, ext, kind=1)
    await peer.ask("wire: old version", Code.GET_MAX_OFFSET, ext, version=0)
    await peer.ask("wire: another language", Code.GET_MAX_OFFSET, ext, language=9)
    await peer.ask("wire: fields that nobody knows", Code.GET_MAX_OFFSET, {**ext, "bname": "x", "Signature": "y"})
    head = b'{"code":30,"extFields":{"topic":"WireTopic","queueId":0,"k":false},"flag":0,"language":"NODE_JS",'
    await peer.raw(
        "wire: numbers and booleans as fields", frame(head + b'"opaque":9001,"x":[1],"version":1}'), 30, 9001
    )
    await peer.raw("wire: header with white space", frame(b' { "code" : 9998 , "opaque" : 9002 } '), 30, 9002)
    await peer.raw("wire: numbers as strings", frame(b'{"code":"9998","opaque":"9003","flag":"0"}'), 30, 9003)
    await peer.raw("wire: empty object", frame(b"{}"), 0, 0, NOTHING_S)  # Apache answers under another number
    await peer.raw("wire: extFields null", frame(b'{"code":30,"opaque":9004,"extFields":null,"remark":null}'), 30, 9004)
    head = b'{"code":30,"opaque":9005,"extFields":{"topic":"WireTopic","queueId":null}}'
    await peer.raw("wire: a field null", frame(head), 30, 9005)
    two = b"".join(
        bytes(part) for n in (9006, 9007) for part in encode(RemotingCommand(9998, n, 0, None, None, b"", 0))
    )
    await peer.raw("wire: two in one piece", two, 9998, 9007)
    for at in range(0, len(two) // 2, 3):
        peer.write(two[at : min(at + 3, len(two) // 2)])
        await asyncio.sleep(0.005)
    stray = RemotingCommand(0, 777, 1, None, None, b"", 0)
    await peer.raw("wire: an answer that nobody waits for", b"".join(map(bytes, encode(stray))), 0, 777, NOTHING_S)
    await peer.ask("wire: goes on after it", 9999)
    bad = {
        "header that is no JSON": frame(b"no json"),
        "header that is a JSON array": frame(b"[1]"),
        "empty header": frame(b""),
        "unknown serialisation": frame(b"{}", kind=2),
        "header longer than its frame": struct.pack(">iI", 20, 100) + bytes(16),
        "length 0": struct.pack(">i", 0) + bytes(8),
        "length 3": struct.pack(">i", 3) + bytes(8),
        "negative length": struct.pack(">i", -5) + bytes(8),
        "length of 1 GiB": struct.pack(">i", 1 << 30) + bytes(64),
        "length of 16 MiB and 1": struct.pack(">i", (16 << 20) + 1) + bytes(64),
        "binary header cut off": frame(b"\0\x1e\0\0\0", kind=1),
        "binary header, lengths beyond": frame(struct.pack(">hBhiii", 30, 0, 0, 1, 0, 1000), kind=1),
        "extFields that are an array": frame(b'{"code":30,"opaque":1,"extFields":[1]}'),
        "extFields of objects": frame(b'{"code":30,"opaque":1,"extFields":{"topic":{"a":1},"queueId":"0"}}'),
        "code that is no number": frame(b'{"code":"x","opaque":1}'),
        "a line of HTTP": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    }
    for name, data in bad.items():
        one = await talk.peer(f"wire {name}")
        await one.raw(f"wire: {name}", data, 30, 1)
    vip = await talk.peer("vip", vip=True)
    await vip.ask("wire: VIP, a send", Code.SEND_MESSAGE_V2, say.send("VipTopic"), b"by the side door")
    await say.until_there(vip, "VipTopic", 1)
    await vip.ask("wire: VIP, a pull", Code.PULL_MESSAGE, say.pull("VipTopic"))
    await vip.ask("wire: VIP, an offset", Code.GET_MIN_OFFSET, {"topic": "VipTopic", "queueId": 0})
    await vip.ask("wire: VIP, unknown code", 9999)
