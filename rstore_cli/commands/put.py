"""`rstore put`: one message, or many. The store is locked, opened as a broker would, and closed cleanly."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import InvalidArgument, RStoreError, StorageError, from_os_error
from engine.format.quantities import counted
from rstore_cli._common import Settings, parse_size, settings_of
from rstore_cli.interrupt import Interrupts
from rstore_cli.render import Output, printable, size

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.format.columns import MessageColumns
    from engine.format.hosts import Host
    from engine.format.message import Message
    from engine.log.results import AppendResult, PutResult
    from engine.store import MessageStore

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_LISTEN_PORT = 10911
_AT_ONCE = 1000
_BYTES_AT_ONCE = 1 << 20


@app.command()
def put(
    context: typer.Context,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Optional with --jsonl: each line names its topic.")
    ] = None,
    queue: Annotated[
        int | None,
        typer.Option("--queue", min=0, metavar="N", help="Queue id (default: 0; with --jsonl that of the line)."),
    ] = None,
    body: Annotated[str | None, typer.Option("--body", metavar="TEXT", help="The body as text.")] = None,
    body_file: Annotated[Path | None, typer.Option("--body-file", metavar="FILE", help="File with the body.")] = None,
    tags: Annotated[str | None, typer.Option("--tags", metavar="TAG", help="Tag (TAGS).")] = None,
    keys: Annotated[
        str | None, typer.Option("--keys", metavar="KEYS", help="Keys (KEYS), separated by blanks.")
    ] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property (repeatable).")
    ] = None,
    delay_level: Annotated[
        int | None, typer.Option("--delay-level", min=1, metavar="N", help="Delay level, as in messageDelayLevel.")
    ] = None,
    sync: Annotated[bool, typer.Option("--sync", help="Flush each message to disk before the next.")] = False,
    jsonl: Annotated[
        str | None,
        typer.Option("--jsonl", metavar="FILE", help="Read messages from JSON lines, as get prints them; - is stdin."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="Put N equal messages, for load tests.")
    ] = None,
    body_size: Annotated[
        str | None, typer.Option("--size", metavar="BYTES", help="Body size with --count (default: 1K).")
    ] = None,
) -> None:
    """Put one message or many.

    Locks the store. Refused (exit code 4) after a crash: run rstore recover first.
    """
    settings = settings_of(context)
    if sum(value is not None for value in (body, body_file, jsonl)) + (body_size is not None) > 1:
        raise InvalidArgument("--body, --body-file, --size and --jsonl exclude each other")
    if jsonl is not None and (count, tags, keys, properties, delay_level) != (None,) * 5:
        raise InvalidArgument(
            "with --jsonl each line has its own tags, keys and properties", hint="leave out the others"
        )
    if topic is None and jsonl is None:
        raise InvalidArgument("TOPIC is required", hint="rstore put TOPIC --body TEXT")
    if topic is not None:
        _check_topic(topic)
    if body_size is not None and count is None:
        raise InvalidArgument("--size requires --count")
    from engine.config import delay_levels
    from rstore_cli.put_lines import open_lines, parsed

    config = settings.load()
    store_host = _store_host(config)
    if delay_level is not None:
        delay_levels(config)
    if jsonl is None:
        assert topic is not None
        payload = _payload(body, body_file, None if count is None else body_size or "1K")
        found = _named(tags, keys, properties, delay_level)
        one = _message(topic, queue or 0, payload, found, store_host)
    if sync:
        from engine.config import FlushDiskType

        config = config.with_changes(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    with ExitStack() as stack:
        lines = None if jsonl is None else open_lines(stack, jsonl)
        if topic is not None:
            _note_new(settings, config, topic)
        interrupts = stack.enter_context(Interrupts())
        run = _Run(settings, stack.enter_context(_opened(settings, config, interrupts)), interrupts)
        if lines is not None:
            run.lines(parsed(lines, jsonl or "", topic, queue, store_host))
        elif count is not None:
            run.load(one, count, one_by_one=sync or not _fits_batches(one))
        else:
            run.one(one)
    run.finish()


class _Run:
    """Puts messages into an open store and says what came of it."""

    def __init__(self, settings: Settings, store: MessageStore, interrupts: Interrupts) -> None:
        self._settings = settings
        self._output: Output = settings.output()
        self._store = store
        self._interrupts = interrupts
        self._began = time.monotonic()
        self._done = 0
        self._bytes = 0
        self._answer: list[Any] = []

    def one(self, message: Message) -> None:
        """One message; its answer is given when the store is closed."""
        self._answer.append(_answer(self._put(message), message, self._config()))

    def lines(self, messages: Iterable[Message]) -> None:
        """Messages of a file; with --json an answer each, else a summary."""
        for message in messages:
            append = self._put(message)
            if self._output.json:
                self._output.line(_answer(append, message, self._config()))
        if not self._output.json:
            self._answer.append(None)

    def load(self, message: Message, count: int, *, one_by_one: bool) -> None:
        """`count` messages alike: in batches, unless each shall be answered by itself or can't be in one."""

        from engine.format.columns import MessageColumns

        length = len(message.body)
        at_once = 1 if one_by_one else max(1, min(_AT_ONCE, count, _BYTES_AT_ONCE // (length + 1)))
        alike = MessageColumns.of(message.body * at_once, [length] * at_once, flag=message.flag)
        with self._output.progress("put", is_bytes=False) as tick:
            for done in range(0, count, at_once):
                now = message._replace(born_timestamp=time.time_ns() // 1_000_000)
                if at_once == 1:
                    self._put(now)
                else:
                    self._put_columns(now, alike[: count - done])
                if at_once > 1 or done % 64 == 0:
                    tick(done, count)
        self._answer.append(None)

    def finish(self) -> None:
        """Print the answer: the store is closed, so what was put is on disk."""
        for answer in self._answer:
            if answer is None:
                self._summary()
            elif self._output.json:
                self._output.document(answer)
            else:
                self._output.text(
                    f"{answer['status']}  {printable(answer['topic'])}/{answer['queueId']} at {answer['queueOffset']}  "
                    f"log {answer['physicalOffset']}  id {answer['msgId']}"
                )

    def _put_columns(self, message: Message, columns: MessageColumns) -> None:
        with self._interrupts.held():
            results = self._store.put_columns(message, columns)
        for result in results:
            self._counted(result)

    def _put(self, message: Message) -> AppendResult:
        with self._interrupts.held():
            result = self._store.put(message)
        return self._counted(result)

    def _counted(self, result: PutResult) -> AppendResult:
        if result.append is None or not result.ok:
            before = f"; {counted(self._done, 'message was', 'messages were')} put before it" if self._done else ""
            error = result.error
            if error is None:
                raise StorageError(f"put: {result.status.value}{before}", path=self._root())
            raise _told(error, before)
        self._done += result.append.message_count
        self._bytes += result.append.size
        put = counted(self._done, "message was put and is", "messages were put and are")
        self._settings.on_interrupt = f"{put} kept; the store was closed cleanly"
        return result.append

    def _summary(self) -> None:
        seconds = max(time.monotonic() - self._began, 1e-6)
        if self._output.json:
            self._output.document(
                {
                    "messages": self._done,
                    "bytes": self._bytes,
                    "seconds": round(seconds, 3),
                    "messagesPerSecond": round(self._done / seconds, 1),
                    "bytesPerSecond": round(self._bytes / seconds, 1),
                }
            )
            return
        self._output.text(
            f"{counted(self._done, 'message')}, {size(self._bytes)}, in {seconds:.1f} s: "
            f"{self._done / seconds:,.0f} a second, {size(int(self._bytes / seconds))}/s"
        )

    def _config(self) -> StoreConfig:
        return self._store.config

    def _root(self) -> str:
        return str(self._store.config.store_path_root_dir)


def _told(error: RStoreError, before: str) -> RStoreError:
    error.message += before
    return error


def _answer(append: AppendResult, message: Message, config: StoreConfig) -> dict[str, Any]:
    """What a broker's SendResult says, with the topic and queue that the message really went to."""
    from engine.config import delay_levels
    from engine.format.delay import queue_of_level
    from engine.format.names import SCHEDULE_TOPIC
    from engine.format.properties import delay_level
    from engine.format.sysflag import is_consumable

    topic, queue_id = message.topic, message.queue_id
    level = delay_level(message.properties) if is_consumable(message.sys_flag) else 0
    if level > 0:
        topic = SCHEDULE_TOPIC
        queue_id = queue_of_level(delay_levels(config).clamp(level))
    return {
        "status": "PUT_OK",
        "msgId": append.msg_id,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": append.queue_offset,
        "physicalOffset": append.physical_offset,
        "storeSize": append.size,
        "storeTimestamp": append.store_timestamp,
    }


# --- opening ---------------------------------------------------------------------------------------------------------


@contextmanager
def _opened(settings: Settings, config: StoreConfig, interrupts: Interrupts) -> Iterator[MessageStore]:
    """The store, open, closed at the end; a directory that is no store is not made one by a typing mistake."""
    from engine.files.disk import Disk
    from engine.inspect.store.guessed_sizes import of_puts
    from engine.inspect.store.survey import survey
    from engine.repair.recover.opening import Policy, recover_for_open
    from engine.store import MessageStore

    disk = Disk()
    problems = of_puts(survey(disk, config))
    store: MessageStore | None = None
    try:
        with interrupts.held():
            # A put is not the place to change a store that needs more than what dispatch does.
            store = MessageStore.open(config, disk, recover=partial(recover_for_open, policy=Policy.AS_IT_IS))
        for problem in problems:
            settings.output().note(f"note: {problem}")
        yield store
    finally:
        with interrupts.held():
            if store is not None:
                store.close()


def _store_host(config: StoreConfig) -> Host:
    """The address in new records: the broker's own where its configuration names it."""
    from engine.broker_conf.values import ValueKind, read_value
    from engine.format import hosts

    try:
        port = read_value(ValueKind.INT, config.other.get("listenPort", ""))
    except ValueError:  # as a broker leaves out what it can't read
        port = _LISTEN_PORT
    return hosts.parse(f"{config.other.get('brokerIP1', '').strip() or '127.0.0.1'}:{port}")


def _note_new(settings: Settings, config: StoreConfig, topic: str) -> None:
    """A put makes a topic that is not there yet: it may be a slip of the hand."""
    from engine.files.disk import Disk
    from engine.inspect.store.known_names import KnownNames

    meant = KnownNames.of_store(Disk(), config).meant_topic(topic)
    if meant:
        settings.output().note(f"note: the topic {topic} is new ({meant})")


# --- what is put -----------------------------------------------------------------------------------------------------


def _check_topic(topic: str) -> None:
    """Refuses what Apache's client refuses to send to. Source: Validators#checkMessage. Raises InvalidArgument."""
    from engine.format.topic_rules import no_sends, refused_by_client

    wrong = refused_by_client(topic) or no_sends(topic)
    if wrong is not None:
        raise InvalidArgument(printable(wrong.rstrip(".")), hint="Apache's client refuses it, too")


def _payload(body: str | None, body_file: Path | None, fill: str | None) -> bytes:
    if body is not None:
        return body.encode("utf-8", "surrogateescape")
    if body_file is not None:
        try:
            return body_file.read_bytes()
        except OSError as error:
            raise from_os_error(error, "reading the body", body_file) from None
    if fill is not None:
        length = parse_size(fill, "--size")
        pattern = bytes(range(ord("a"), ord("z") + 1))
        return (pattern * (length // len(pattern) + 1))[:length]
    return b""


def _named(tags: str | None, keys: str | None, given: list[str] | None, delay_level: int | None) -> dict[str, str]:
    from engine.format import properties as names
    from rstore_cli.messages import checked_properties

    found: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidArgument(f"--property {printable(text)}: not NAME=VALUE")
        found[name] = value
    if keys is not None:
        found[names.KEYS] = keys
    if tags is not None:
        found[names.TAGS] = tags
    if delay_level is not None:
        found[names.DELAY] = str(delay_level)
    return checked_properties(found)


def _message(topic: str, queue_id: int, body: bytes, found: dict[str, str], store_host: Host) -> Message:
    from dataclasses import replace

    from engine.format.message import Message

    now = time.time_ns() // 1_000_000
    return Message(
        topic=topic,
        body=body,
        queue_id=queue_id,
        properties=found,
        born_timestamp=now,
        born_host=replace(store_host, port=0),
        store_host=store_host,
    )


def _fits_batches(message: Message) -> bool:
    """Whether it may be one of a batch: neither delayed nor for further queues."""
    from engine.format.properties import DELAY, INNER_MULTI_DISPATCH

    return not {DELAY, INNER_MULTI_DISPATCH} & message.properties.keys()
