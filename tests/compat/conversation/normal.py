"""An answer as plain values in which ports, times and places in the log have names, so that two brokers' are equal."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

from engine.errors import FormatError
from engine.format.message import decode, parse_msg_id
from engine.wire.command import RemotingCommand

MESSAGES = frozenset({11, 12, 33, 39, 309, 361})
"""Codes of which the body is stored messages."""
_PLACES = frozenset({"commitLogOffset", "physicOffset", "physical_offset", "prepared_transaction_offset"})
_SETS = frozenset(
    {
        "topicList", "groupList", "connectionSet", "consumerIdList", "lockOKMQSet", "subscriptionSet", "tagsSet",
        "codeSet", "consumeTimeSpanSet", "consumeStatsList",
    }
)  # fmt: skip
"""Lists that Java makes of a hash table: they have no order."""
_OBJECT_KEY = re.compile(r"([{,])(\{[^{}]*\}):")
_BARE_KEY = re.compile(r"([{,])(-?\d+):")
_ID = re.compile(r"\b(?:7F000001[0-9A-F]{24})\b")
_PLACE_SAID = re.compile(r"(by (?:the )?offset(?: failed)?, )\d{2,12}$")
_AROUND_MS = 4 * 3600 * 1000
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")


class Names:
    """What one broker's ports and places are called."""

    def __init__(self, broker: str, names: str, home: str) -> None:
        self._addresses = {broker: "<broker>", names: "<names>"}
        self._places: dict[int, str] = {}
        self._home = home
        self._now_ms = time.time_ns() // 1_000_000

    def call(self, address: str, name: str) -> None:
        """A client's address."""
        self._addresses[address] = f"<{name}>"

    def place(self, offset: int, step: str) -> str:
        """A place in the log: it has the name of the step that saw it first."""
        return self._places.setdefault(offset, f"<by {step}>" if offset else "<0>")

    def text(self, text: str, step: str) -> str:
        """With names for addresses and message ids."""
        text = _ADDRESS.sub(lambda found: self._addresses.get(found[0], "<somebody>"), text)
        text = _PLACE_SAID.sub(r"\1<place>", text.replace(self._home, "<home>"))
        return _ID.sub(lambda found: f"<id {self.place(parse_msg_id(found[0])[1], step)}>", text)

    def number(self, value: int, name: str, step: str) -> int | str:
        """A time of now, a place, or the number itself."""
        if name == "indexLastUpdatePhyoffset":  # of whoever sent last
            return "<somewhere>" if value else 0
        if name in _PLACES:
            return self.place(value, step)
        return "<time>" if abs(value - self._now_ms) < _AROUND_MS else value

    def value(self, value: Any, name: str, step: str) -> Any:
        """Anything that JSON has."""
        if isinstance(value, dict):
            if set(value) == {"counter", "timestamp"}:
                return "<version>"
            return {self.text(str(key), step): self.value(one, str(key), step) for key, one in value.items()}
        if isinstance(value, list):
            found = [self.value(one, name, step) for one in value]
            return sorted(found, key=lambda one: json.dumps(one, sort_keys=True)) if name in _SETS else found
        if isinstance(value, str):
            if re.fullmatch(r"-?\d{1,19}", value):
                return str(self.number(int(value), name, step))
            return self.text(value, step)
        if isinstance(value, int) and not isinstance(value, bool):
            return self.number(value, name, step)
        return value


def answer_of(command: RemotingCommand | None, request_code: int, step: str, names: Names) -> dict[str, Any]:
    """An answer, or that there was none, flat: field to value."""
    if command is None:
        return {"answer": "none"}
    said: dict[str, Any] = {
        "answer": "yes",
        "code": command.code,
        "flag": command.flag,
        "remark": None if command.remark is None else names.text(command.remark, step),
        "serialisation": command.serialize.name,
        "version": command.version,
        "language": command.language,
        "extFields": "none" if command.ext is None else "some",
    }
    for name, value in command.fields.items():
        said[f"ext.{name}"] = names.value(value, name, step)
    said.update(_flat("body", _body(bytes(command.body), request_code, step, names)))
    return said


def _body(body: bytes, code: int, step: str, names: Names) -> Any:
    if not body:
        return None
    if code in MESSAGES:
        return list(_messages(body, step, names))
    text = body.decode("utf-8", "replace")
    try:
        found = json.loads(_standard(text))
    except ValueError:
        return names.text(text, step)
    return names.value(found, "", step)


def _standard(text: str) -> str:
    """JSON, of what fastjson writes: objects and numbers as keys become strings."""

    def quoted(found: re.Match[str]) -> str:
        return f"{found[1]}{json.dumps(json.dumps(json.loads(found[2]), sort_keys=True))}:"

    return _BARE_KEY.sub(r'\1"\2":', _OBJECT_KEY.sub(quoted, text))


def _messages(body: bytes, step: str, names: Names) -> Iterator[Any]:
    at = 0
    while at < len(body):
        try:
            found = decode(body, at)
        except FormatError as error:
            yield f"no message: {error.message}"
            return
        at += found.total_size
        said = found._asdict()
        said["properties_raw"] = sorted(found.properties_raw.decode("utf-8", "replace").split("\x02"))
        said["properties_raw"] = [names.text(one, step).replace("\x01", "=") for one in said["properties_raw"]]
        said["born_host"], said["store_host"] = names.text(str(found.born_host), step), str(found.store_host)
        said["store_host"] = names.text(said["store_host"], step)
        said["body"] = names.text(found.body[:200].decode("utf-8", "replace"), step)
        said["crc_ok"] = found.crc_ok
        yield {
            name: names.number(value, name, step) if isinstance(value, int) and not isinstance(value, bool) else value
            for name, value in said.items()
        }


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from _flat(f"{name}.{key}", one)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for at, one in enumerate(value):
            yield from _flat(f"{name}[{at}]", one)
    else:
        yield name, value


def runtime_keys(runtime: RemotingCommand) -> list[str]:
    """The keys of GET_BROKER_RUNTIME_INFO, without the paths that are in some."""
    table = json.loads(bytes(runtime.body) or b"{}").get("table", {})
    return sorted({re.sub(r"_/.*", "_<path>", key) for key in table})
