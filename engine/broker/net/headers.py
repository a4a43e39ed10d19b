"""The headers of a daemon under load: by natives (`engine.broker.net.plain_headers`), or as `engine.wire` has them."""

from __future__ import annotations

from typing import Final

from engine.log.natives import FastLane
from engine.wire.command import LANGUAGES, RemotingCommand, SerializeType, decode_header
from engine.wire.frames import STORED_PIECES, stored_frame

_FIELDS = ("code", "opaque", "flag", "version", "language", "remark", "extFields", "serializeTypeCurrentRPC")
"""Names of a header's fields, in the order that the native has them in."""
_JSON = SerializeType.JSON
REQUEST: Final = FastLane("engine.broker.net.plain_headers", "request")
STORED: Final = FastLane("engine.broker.net.plain_headers", "stored")


def command_of(header: bytes, serialize: int, body: bytes) -> RemotingCommand:
    """The command of a frame. Raises BadHeader as `decode_header`."""
    if serialize == _JSON and (native := REQUEST.after(1)) is not None:
        command: RemotingCommand | None = native(header, body, RemotingCommand, LANGUAGES, _JSON, _FIELDS, None)
        if command is not None:
            return command
    return decode_header(header, serialize, body)


def frame_of_stored(opaque: int, id_head: bytes, physical_offset: int, queue_id: int, queue_offset: int) -> bytes:
    """The frame that answers a send whose message is stored. `id_head`: what the id of a message begins with."""
    if (native := STORED.after(1)) is not None:
        frame: bytes | None = native(STORED_PIECES, id_head, physical_offset, queue_id, queue_offset, opaque, None)
        if frame is not None:
            return frame
    return stored_frame(opaque, f"{id_head.decode()}{physical_offset:016X}", queue_id, queue_offset)
