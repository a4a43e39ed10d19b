"""One command: the header of a frame in either serialisation, with its body (REMOTING.md 1.1, 1.2; RemotingCommand).

Reading is as tolerant as Apache's readers, since real clients need it: numbers and booleans as values of extFields,
unknown keys, unknown languages. Writing is as strict as the strictest client wants it: every value of extFields a
string, no whitespace.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from engine.errors import FormatError
from engine.format.numbers import INT_MAX, INT_MIN
from engine.wire.codes import V4_9_8, LanguageCode, ResponseCode

RESPONSE = 1
ONEWAY = 2
"""Bits of `flag`."""

_FIXED = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, remark length
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_NO_FIELDS: Mapping[str, str] = {}
_NUMBERS = ("code", "opaque", "flag", "version")
_made = tuple.__new__
"""Makes a NamedTuple without the cost of its own `__new__`."""
LANGUAGES: Final = {language.name: int(language) for language in LanguageCode}
_NAMES = {int(language): language.name for language in LanguageCode}


class BadHeader(FormatError):
    """A frame's header that says nothing that a command could be: the connection is closed."""


class SerializeType(enum.IntEnum):
    """How a header is written."""

    JSON = 0
    ROCKETMQ = 1


_JSON, _JAVA = SerializeType.JSON, LanguageCode.JAVA
"""Read once: Python looks for a member of an enumeration by a call, which takes as long as a step of decoding."""


class RemotingCommand(NamedTuple):
    """A request or a response. A tuple: one is made for each frame.

    Attributes:
        code: of the request (RequestCode) or the response (ResponseCode); a peer may send numbers that we don't know.
        opaque: what a response has from its request.
        flag: RESPONSE, ONEWAY.
        remark: None or text.
        ext: extFields.
        body: b"" when there is none.
        language: LanguageCode, None for one that we don't know.
        version: ordinal of MQVersion.
        serialize: how the header was, or is to be, written.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext: Mapping[str, str] | None = None
    body: bytes | memoryview = b""
    language: int | None = LanguageCode.OTHER
    version: int = V4_9_8
    serialize: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        """Whether it answers a request."""
        return bool(self.flag & RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether nobody waits for an answer."""
        return bool(self.flag & ONEWAY)

    @property
    def fields(self) -> Mapping[str, str]:
        """extFields, empty for none."""
        return self.ext or _NO_FIELDS

    def answer(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        ext: Mapping[str, str] | None = None,
        body: bytes | memoryview = b"",
    ) -> RemotingCommand:
        """A response to this request, serialised as it was."""
        return RemotingCommand(code, self.opaque, RESPONSE, remark, ext, body, _JAVA, V4_9_8, self.serialize)


def encode_header(command: RemotingCommand) -> bytes:
    """The header's bytes. Raises FormatError: a number that its field can't hold."""
    if command.serialize is _JSON:
        return _encode_json(command)
    return _encode_binary(command)


def decode_header(header: bytes | memoryview, serialize: int, body: bytes | memoryview) -> RemotingCommand:
    """The command of a frame.

    Raises:
        BadHeader: an unknown serialisation, or bytes that are no header; `offset` is where in the header.
    """
    if serialize == _JSON:
        return _decode_json(header, body)
    if serialize == SerializeType.ROCKETMQ:
        return _decode_binary(header, body)
    raise BadHeader(f"unknown header serialisation {serialize}", offset=0)


# --- JSON ------------------------------------------------------------------------------------------------------------


def _encode_json(command: RemotingCommand) -> bytes:
    header: dict[str, Any] = {"code": command.code}
    if command.ext is not None:
        header["extFields"] = command.ext
    header["flag"] = command.flag
    header["language"] = _NAMES.get(command.language if command.language is not None else -1, "OTHER")
    header["opaque"] = command.opaque
    if command.remark is not None:
        header["remark"] = command.remark
    header["serializeTypeCurrentRPC"] = "JSON"
    header["version"] = command.version
    return orjson.dumps(header)


def _decode_json(header: bytes | memoryview, body: bytes | memoryview) -> RemotingCommand:
    try:
        fields = orjson.loads(header)
    except orjson.JSONDecodeError as error:
        raise BadHeader(f"header is not JSON: {error.msg}", offset=error.pos) from None
    if not isinstance(fields, dict):
        raise BadHeader("header is not a JSON object", offset=0)
    get = fields.get
    ext, remark, language = get("extFields"), get("remark"), get("language")
    if ext is not None:
        if not isinstance(ext, dict):
            raise BadHeader("extFields is not a JSON object", offset=0)
        try:
            "".join(ext.values())  # the quickest way to see that all are strings, as most clients have it
        except TypeError:
            ext = {name: _text(value) for name, value in ext.items() if value is not None}
    code, opaque, flag, version = get("code"), get("opaque"), get("flag"), get("version")
    if not (
        type(code) is type(opaque) is type(flag) is type(version) is int
        and INT_MIN <= code <= INT_MAX
        and INT_MIN <= opaque <= INT_MAX
        and INT_MIN <= flag <= INT_MAX
        and INT_MIN <= version <= INT_MAX
    ):
        code, opaque, flag, version = (_number(fields, name) for name in _NUMBERS)
    return _made(
        RemotingCommand,
        (
            code, opaque, flag, None if remark is None else _text(remark), ext, body,
            LANGUAGES.get(language) if type(language) is str else _language(language), version, _JSON,
        ),
    )  # fmt: skip


def _text(value: object) -> str:
    """A value as Java's fastjson makes a string of it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return orjson.dumps(value).decode()


def _number(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name, 0)
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            value = None
    if not isinstance(value, int) or isinstance(value, bool) or not INT_MIN <= value <= INT_MAX:
        raise BadHeader(f"{name} is not a 32-bit integer", offset=0)
    return value


def _language(value: object) -> int | None:
    if isinstance(value, str):
        return LANGUAGES.get(value)
    if isinstance(value, int) and value in _NAMES:
        return value
    return None


# --- ROCKETMQ --------------------------------------------------------------------------------------------------------


def _encode_binary(command: RemotingCommand) -> bytes:
    remark = b"" if command.remark is None else command.remark.encode("utf-8", "replace")
    parts: list[bytes] = []
    for name, value in command.fields.items():
        key, text = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        parts += (_SHORT.pack(len(key)), key, _INT.pack(len(text)), text)
    ext = b"".join(parts)
    language = LanguageCode.OTHER if command.language is None else command.language
    try:
        fixed = _FIXED.pack(command.code, language, command.version, command.opaque, command.flag, len(remark))
    except struct.error as error:
        raise FormatError(f"number out of range for its field: {error}") from None
    return b"".join((fixed, remark, _INT.pack(len(ext)), ext))


def _decode_binary(header: bytes | memoryview, body: bytes | memoryview) -> RemotingCommand:
    header = bytes(header)
    if len(header) < _FIXED.size:
        raise BadHeader(f"header is too short: {len(header)} bytes", offset=0)
    code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(header)
    remark, at = _piece(header, _FIXED.size, remark_length)
    length, at = _length(header, at, _INT)
    if length < 0 or at + length > len(header):
        raise BadHeader("extFields ends after the header", offset=at)
    end = at + length
    ext: dict[str, str] = {}
    while at < end:
        size, at = _length(header, at, _SHORT)
        name, at = _piece(header, at, size)
        size, at = _length(header, at, _INT)
        value, at = _piece(header, at, size)
        if at > end:
            raise BadHeader("a field ends after extFields", offset=at)
        if name and value:  # Java's reader makes null of empty ones
            ext[_utf8(name)] = _utf8(value)
    return RemotingCommand(
        code, opaque, flag, _utf8(remark) if remark else None, ext or None, body,
        language if language in _NAMES else None, version, SerializeType.ROCKETMQ,
    )  # fmt: skip


def _length(header: bytes, at: int, kind: struct.Struct) -> tuple[int, int]:
    if at + kind.size > len(header):
        raise BadHeader("header ends inside a length", offset=at)
    return kind.unpack_from(header, at)[0], at + kind.size


def _piece(header: bytes, at: int, size: int) -> tuple[bytes, int]:
    if size < 0 or at + size > len(header):
        raise BadHeader(f"invalid length {size} in a header of {len(header)} bytes", offset=at)
    return header[at : at + size], at + size


def _utf8(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
