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
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    from engine.log.kernels.message_lines import ParsedLines
    from engine.log.run_columns import RunColumns

BLOCK = 256 << 10
"""Bytes that are read at a time; a line may be longer."""
HINT = "the lines before it were put; correct it and put the rest"
MANY = 4 << 20
"""Bytes of lines that are made messages of before the kernel is loaded that does it."""
_LONGEST_PAUSE = 63
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
) -> Iterator[Sequence[Message]]:
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
    for text in _blocks(source, name):
        run = maker.run(text)
        if run is not None:
            before += len(run)
            yield run
            continue
        block = text.removesuffix(b"\n").split(b"\n")
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


def _blocks(source: BufferedReader, name: str) -> Iterator[bytes]:
    """Whole lines, those that have come; each ends with a newline, but for a last one that has no end."""
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
        end = data.rfind(b"\n") + 1
        if end:
            whole = b"".join((*rest, data[:end])) if rest else data[:end]
            rest, data = [], data[end:]
        if data:
            rest.append(data)
        if end:
            yield whole
    if rest:
        yield b"".join(rest).removesuffix(b"\r")


class _Maker:
    """Makes messages of lines."""

    def __init__(self, topic: str | None, queue_id: int | None, store_host: Host) -> None:
        self._topic = topic
        self._queue_id = queue_id
        self._store_host = store_host
        self._topics: set[str] = set()  # of lines, which may be put to
        self._hosts: dict[str, Host] = {}
        self._kinds: dict[tuple[str, ...], bool] = {}
        self._left = MANY  # bytes of lines before the kernel is loaded
        self._parse: Callable[[bytes], ParsedLines | None] | None = None
        self._pause = self._paused = 0
        self.number = 0

    def run(self, text: bytes) -> RunColumns | None:
        """The messages of whole lines, where a kernel can make all of them; None: `messages` is to.

        After lines that it could not take it is not asked for the next: for one block at first, for more each time.
        """
        if self._left > 0:
            self._left -= len(text)
            if self._left <= 0:
                self._parse = _kernel()
        if self._parse is None:
            return None
        if self._paused > 0:
            self._paused -= 1
            return None
        run = self._columns(text, self._parse)
        self._pause = 0 if run is not None else min(2 * self._pause + 1, _LONGEST_PAUSE)
        self._paused = self._pause
        return run

    def _columns(self, text: bytes, parse: Callable[[bytes], ParsedLines | None]) -> RunColumns | None:
        if not _is_utf8(text):
            return None
        lines = parse(text if text.endswith(b"\n") else text + b"\n")
        if lines is None:
            return None
        from engine.log.run_columns import RunColumns

        places: list[tuple[str, int]] = []
        for raw, queue_id in lines.places:
            topic = self._topic if raw is None else raw.decode()
            if topic is None or topic not in self._topics:
                return None
            places.append((self._topic or topic, queue_id if self._queue_id is None else self._queue_id))
        now = time.time_ns() // 1_000_000
        columns = lines.bodies, lines.body_length, lines.names, lines.own_length, lines.which
        return RunColumns(*columns, tuple(places), now, hosts.LOOPBACK, self._store_host)

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


def _kernel() -> Callable[[bytes], ParsedLines | None] | None:
    """What makes columns of lines; None without numba."""
    try:
        from engine.log.kernels.message_lines import parsed_lines
    except ImportError:
        return None
    return parsed_lines


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


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
