"""The lines of `put --jsonl` and `send --jsonl`: read in blocks, and each made a message of.

What `get` and `dump commitlog` print is what lines are made like, as a rule, and such a line is a message after one
look at its fields. Whatever else a line holds is for `rstore_cli.messages.from_json`, which has the rules, and names
what is wrong.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, repeat
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from engine.errors import InvalidArgument, from_os_error
from engine.format import hosts
from engine.format.message import Message
from engine.format.names import SCHEDULE_TOPIC
from engine.format.properties import NAME_VALUE, SEPARATOR
from engine.format.topic_rules import refused_by_client
from rstore_cli.messages import MADE_ANEW, TAKEN, from_json
from rstore_cli.render import printable

if TYPE_CHECKING:
    from io import BufferedReader

    from engine.format.hosts import Host

BLOCK = 256 << 10
"""Bytes that are read at a time; a line may be longer."""
HINT = "the lines before it were put; correct it and put the rest"
_KEPT = 4096
"""Topics, hosts, and kinds of lines that are remembered."""
_PLAIN = frozenset({"topic", "queueId", "body", "properties"})
_KNOWN = frozenset(TAKEN) | (MADE_ANEW - {"decompressedLength"})
_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
_MAPPINGS = {dict, MappingProxyType}
_made = tuple.__new__
"""Makes a Message of all its fields in half the time of its constructor."""


def open_lines(stack: ExitStack, name: str) -> BufferedReader:
    """A file's bytes, closed with the stack; "-" is stdin. Raises StorageError."""
    if name == "-":
        return cast("BufferedReader", sys.stdin.buffer)
    try:
        return stack.enter_context(Path(name).open("rb"))
    except OSError as error:
        raise from_os_error(error, "reading messages", name) from None


def parsed(
    source: BufferedReader,
    name: str,
    topic: str | None,
    queue_id: int | None,
    store_host: Host,
    hint: str = HINT,
) -> Iterator[list[Message]]:
    """The messages that the lines stand for, in blocks: as many as have come, and are not more than `BLOCK`.

    Args:
        source: JSON objects, a line each, as `get` prints them. Lines end as in any text: with \\n, \\r\\n or \\r.
        name: the file's, for errors.
        topic: wins over the lines' own; None: each names its own.
        queue_id: likewise.
        store_host: where a line has none.
        hint: of an error, what became of the lines before.

    Raises:
        InvalidArgument: a line that is none, or a topic that Apache's client refuses; it names the line. Those before
        it have been given. StorageError: the file can't be read.
    """
    maker = _Maker(topic, queue_id, store_host)
    before = 0
    for block in _blocks(source, name):
        messages: list[Message] = []
        wrong: InvalidArgument | None = None
        try:
            maker.messages(block, messages)
        except json.JSONDecodeError as error:
            wrong = _at_line(before + maker.number, f"not JSON: {error.msg}", name, hint)
        except RecursionError:
            wrong = _at_line(before + maker.number, "not JSON: nested too deeply", name, hint)
        except UnicodeDecodeError:
            wrong = _at_line(before + maker.number, "not UTF-8", name, hint)
        except InvalidArgument as error:
            wrong = _at_line(before + maker.number, error.message, name, error.hint or hint)
        before += len(block)
        if messages:
            yield messages
        if wrong is not None:
            raise wrong


def _at_line(number: int, what: str, name: str, hint: str) -> InvalidArgument:
    return InvalidArgument(f"line {number}: {what}", path="stdin" if name == "-" else name, hint=hint)


def _blocks(source: BufferedReader, name: str) -> Iterator[list[bytes]]:
    """Whole lines, without their ends: those that have come."""
    rest: list[bytes] = []
    while True:
        try:
            data = source.read1(BLOCK)
        except OSError as error:
            raise from_os_error(error, "reading messages", "stdin" if name == "-" else name) from None
        if not data:
            break
        if rest and rest[-1].endswith(b"\r"):  # whether it ends a line by itself is known now
            data = rest.pop() + data
        if b"\r" in data:
            held = data.endswith(b"\r")
            data = data[: len(data) - held].replace(b"\r\n", b"\n").replace(b"\r", b"\n") + b"\r" * held
        lines = data.split(b"\n")
        if len(lines) > 1:
            lines[0] = b"".join((*rest, lines[0]))
            rest = []
        last = lines.pop()
        if last:
            rest.append(last)
        if lines:
            yield lines
    if rest:
        yield [b"".join(rest).removesuffix(b"\r")]


class _Maker:
    """Makes messages of lines."""

    def __init__(self, topic: str | None, queue_id: int | None, store_host: Host) -> None:
        self._topic = topic
        self._queue_id = queue_id
        self._store_host = store_host
        self._topics: set[str] = set()  # of lines, which may be put to
        self._hosts: dict[str, Host] = {}
        self._kinds: dict[tuple[str, ...], bool] = {}
        self.number = 0

    def messages(self, lines: Sequence[bytes], out: list[Message]) -> None:
        """Put the messages of lines after each other into `out`; `number` says which line it is at, from 1 on.

        Raises:
            JSONDecodeError, UnicodeDecodeError, InvalidArgument: the line is none. Those before it are in `out`.
        """
        values = _values(lines)
        plain = self._plain(values)
        if plain is not None:
            out += plain
            return
        for number, (line, value) in enumerate(zip(lines, values, strict=True), 1):
            message = self._quickly(value) if type(value) is dict else None
            if message is None:
                self.number = number
                message = self._by_the_rules(line)
            if message is not None:
                out.append(message)

    def _plain(self, values: Sequence[Any]) -> list[Message] | None:
        """The messages of lines that have topic, queue, body and properties alone, as programs write them: all at once.

        None: some are others, or the rules are to say what is wrong.
        """
        if set(map(type, values)) != {dict} or not all(map(_PLAIN.issuperset, set(map(tuple, values)))):
            return None
        topics = [value.get("topic", self._topic) for value in values]
        queue_ids = [value.get("queueId", 0) for value in values]
        bodies = [value.get("body", "") for value in values]
        names = [value.get("properties", _NO_PROPERTIES) for value in values]
        kinds = [set(map(type, column)) for column in (topics, queue_ids, bodies)]
        if (
            kinds != [{str}, {int}, {str}]
            or not set(map(type, names)) <= _MAPPINGS
            or not self._topics.issuperset(topics)
            or not _storable(names)
        ):
            return None
        if self._topic is not None:
            topics = [self._topic] * len(topics)
        if self._queue_id is not None:
            queue_ids = [self._queue_id] * len(queue_ids)
        now = time.time_ns() // 1_000_000
        rest = map(repeat, (0, 0, now, hosts.LOOPBACK, self._store_host, 0, 0))
        rows = zip(topics, map(str.encode, bodies), queue_ids, names, *rest, strict=False)
        return [_made(Message, row) for row in rows]

    def _by_the_rules(self, line: bytes) -> Message | None:
        text = line.decode("utf-8")
        if not text.strip():
            return None
        now = time.time_ns() // 1_000_000
        value = json.loads(text)
        message = from_json(value, topic=self._topic, queue_id=self._queue_id, now_ms=now, store_host=self._store_host)
        if message is not None:
            wrong = refused_by_client(message.topic)
            if wrong is not None:
                raise InvalidArgument(printable(wrong.rstrip(".")))
            own = value.get("topic") or message.topic
            if own != SCHEDULE_TOPIC and len(self._topics) < _KEPT:
                self._topics.add(own)
        return message

    def _quickly(self, value: dict[str, Any]) -> Message | None:
        """The message of a line, if all in it is as it is as a rule; else None."""
        kind = tuple(value)
        known = self._kinds[kind] if kind in self._kinds else self._look(kind)
        get = value.get
        now = time.time_ns() // 1_000_000
        named, own_topic, coded = get("properties", _NO_PROPERTIES), get("topic", self._topic), get("bodyBase64")
        text = get("body", "") if coded is None else coded
        numbers = (
            get("queueId", 0), get("flag", 0), get("sysFlag", 0), get("bornTimestamp", now), get("reconsumeTimes", 0),
            get("preparedTransactionOffset", 0),
        )  # fmt: skip
        born_host = self._host(get("bornHost"), hosts.LOOPBACK)
        store_host = self._host(get("storeHost"), self._store_host)
        if (
            not known
            or get("kind", "message") != "message"
            or type(own_topic) is not str
            or type(text) is not str
            or own_topic not in self._topics
            or type(named) not in _MAPPINGS
            or set(map(type, numbers)) != {int}
            or born_host is None
            or store_host is None
            or not _storable((named,))
        ):
            return None
        try:
            body = text.encode() if coded is None else base64.b64decode(coded, validate=True)
        except ValueError:
            return None
        queue_id, flag, sys_flag, born, times, prepared = numbers
        topic = self._topic or own_topic
        queue_id = queue_id if self._queue_id is None else self._queue_id
        fields = (topic, body, queue_id, named, flag, sys_flag, born, born_host, store_host, times, prepared)
        return _made(Message, fields)

    def _host(self, text: Any, default: Host) -> Host | None:
        """The host of a text, the same object each time; None: `hosts.parse` is to say what it is."""
        if text is None:
            return default
        if type(text) is not str:
            return None
        host = self._hosts.get(text)
        if host is None and len(self._hosts) < _KEPT:
            try:
                host = self._hosts[text] = hosts.parse(text)
            except InvalidArgument:
                return None
        return host

    def _look(self, kind: tuple[str, ...]) -> bool:
        """Whether a line with these fields may be made a message of as it is."""
        known = _KNOWN.issuperset(kind)
        if len(self._kinds) < _KEPT:
            self._kinds[kind] = known
        return known


def _values(lines: Sequence[bytes]) -> list[Any]:
    """What each line holds; None: nothing that could be read as a rule. It may be JSON all the same."""
    import orjson  # here: man pages are made of the commands where nothing but typer is installed

    try:
        return list(map(orjson.loads, lines))
    except orjson.JSONDecodeError:
        values: list[Any] = []
        for line in lines:
            try:
                values.append(orjson.loads(line))
            except orjson.JSONDecodeError:
                values.append(None)
        return values


def _storable(names: Sequence[Mapping[str, Any]]) -> bool:
    """Whether `rstore_cli.messages.checked_properties` takes them all, and all values are text."""
    values = chain.from_iterable([named.values() for named in names])
    try:
        text = "".join(chain(chain.from_iterable(names), values))
    except TypeError:
        return False
    return NAME_VALUE not in text and SEPARATOR not in text and not any("" in named for named in names)
