"""A message from its JSON (engine.format.message_json makes it), and as a few lines of text."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from engine.errors import InvalidArgument
from engine.format import hosts, names, properties, sysflag
from engine.format.message import Message, StoredMessage
from engine.format.message_json import body_text, inflate, is_compressed
from engine.format.quantities import moment
from rstore_cli.render import printable, size

if TYPE_CHECKING:
    from engine.format.hosts import Host


def to_text(message: StoredMessage, *, redact: bool = False, decompress: bool = False, limit: int = 200) -> list[str]:
    """A few lines for people."""
    properties = message.properties
    head = (
        f"{printable(message.topic)}/{message.queue_id} at {message.queue_offset}  "
        f"stored {moment(message.store_timestamp)}  log {message.physical_offset} ({size(message.total_size)})"
    )
    lines = [head, f"  id {message.msg_id}"]
    shown = "  ".join(f"{printable(k)}={printable(v, 120)}" for k, v in properties.items())
    if shown:
        lines.append(f"  {shown}")
    if redact:
        lines.append(f"  body: {size(len(message.body))}")
        return lines
    plain = inflate(message) if decompress else None
    body = message.body if plain is None else plain
    text = None if plain is None and is_compressed(message) else body_text(body)
    if text is None:
        kind = "compressed" if plain is None and is_compressed(message) else "binary"
        lines.append(f"  body: {size(len(body))}, {kind}: {body[:32].hex(' ')}{' …' if len(body) > 32 else ''}")
    else:
        lines.append(f"  body: {printable(text, limit)}" if text else "  body: empty")
    return lines


# --- back ------------------------------------------------------------------------------------------------------------

TAKEN: tuple[str, ...] = (
    "topic",
    "queueId",
    "properties",
    "flag",
    "sysFlag",
    "bornTimestamp",
    "bornHost",
    "storeHost",
)
TAKEN += ("reconsumeTimes", "preparedTransactionOffset", "body", "bodyBase64")
MADE_ANEW = {"kind", "msgId", "queueOffset", "physicalOffset", "storedPhysicalOffset", "storeSize", "storeTimestamp"}
MADE_ANEW |= {"bodyCRC", "bodyLength", "decompressedLength"}
_FIELDS = frozenset(TAKEN) | MADE_ANEW
"""What a line may hold: what a put takes, and what it makes anew but `get` and `dump commitlog` print."""


def from_json(value: Any, *, topic: str | None, queue_id: int | None, now_ms: int, store_host: Host) -> Message | None:
    """The message that a line of `get` or `dump commitlog` stands for; None for a line that is no message.

    `topic` and `queue_id` win over the line's own. A message that waits for its delivery time goes to its real topic
    again, with its delay.

    Raises:
        InvalidArgument: a field is missing, or not what it should be.
    """
    if not isinstance(value, dict):
        raise InvalidArgument("not a JSON object")
    if value.get("kind", "message") != "message":
        return None
    for name in value.keys() - _FIELDS:
        raise _unknown(name)
    named = _properties(value)
    line_topic, line_queue = _field(value, "topic", str, None), _field(value, "queueId", int, 0)
    if line_topic == names.SCHEDULE_TOPIC and named.get(properties.REAL_TOPIC):
        line_topic = named.pop(properties.REAL_TOPIC)
        real_queue = named.pop(properties.REAL_QID, "0")
        line_queue = int(real_queue) if real_queue.isdecimal() else 0
    flags = _field(value, "sysFlag", int, 0)
    if "decompressedLength" in value:  # the body is as its producer had it
        flags &= ~(sysflag.COMPRESSED | sysflag.COMPRESSION_TYPE_MASK)
    chosen = topic or line_topic
    if not chosen:
        raise InvalidArgument("no topic", hint="give it on the command line or in each line")
    return Message(
        topic=chosen,
        body=_body(value),
        queue_id=line_queue if queue_id is None else queue_id,
        properties=named,
        flag=_field(value, "flag", int, 0),
        sys_flag=flags,
        born_timestamp=_field(value, "bornTimestamp", int, now_ms),
        born_host=_host(value, "bornHost", hosts.LOOPBACK),
        store_host=_host(value, "storeHost", store_host),
        reconsume_times=_field(value, "reconsumeTimes", int, 0),
        prepared_transaction_offset=_field(value, "preparedTransactionOffset", int, 0),
    )


def _unknown(name: str) -> InvalidArgument:
    plain = "".join(c for c in name.lower() if c.isalnum())
    like = {field.lower(): field for field in TAKEN}.get(plain)
    if like is not None:
        hint = f"did you mean {like}?"
    elif name.upper() in (properties.KEYS, properties.TAGS):
        hint = f'it is a property: "properties": {{"{name.upper()}": "…"}}'
    else:
        hint = "fields of a message: " + ", ".join(TAKEN)
    return InvalidArgument(f"unknown field {printable(name)}", hint=hint)


def checked_properties(named: dict[str, str]) -> dict[str, str]:
    """The properties themselves, when they can be stored.

    Raises:
        InvalidArgument: a name or value holds one of the two characters that separate them, or is empty.
    """
    for name, value in named.items():
        if any(c in name or c in value for c in (properties.NAME_VALUE, properties.SEPARATOR)):
            raise InvalidArgument(
                f"property {printable(name)}: must not contain \\x01 or \\x02, which separate properties"
            )
        if not name:
            raise InvalidArgument("a property without a name")
    return named


def _properties(value: dict[str, Any]) -> dict[str, str]:
    properties = _field(value, "properties", dict, {})
    for name, text in properties.items():
        if not isinstance(text, str):
            raise InvalidArgument(f"properties: the value of {name} is not text")
    return checked_properties(dict(properties))


def _field(value: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    field = value.get(name)
    if field is None:
        return default
    if not isinstance(field, kind) or isinstance(field, bool):
        raise InvalidArgument(f"{name} is not {'a number' if kind is int else 'text' if kind is str else 'an object'}")
    return field


def _host(value: dict[str, Any], name: str, default: Host) -> Host:
    text = _field(value, name, str, None)
    return default if text is None else hosts.parse(text)


def _body(value: dict[str, Any]) -> bytes:
    coded = _field(value, "bodyBase64", str, None)
    if coded is None:
        text: str = _field(value, "body", str, "")
        return text.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(coded, validate=True)
    except ValueError:  # binascii.Error, or letters that are not ASCII's
        raise InvalidArgument("bodyBase64 is invalid Base64") from None
