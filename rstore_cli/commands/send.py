"""`rstore send`: messages to a running cluster, from arguments, lines or JSON lines."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from engine.errors import InvalidArgument, from_os_error
from engine.format.compression import CompressionType, inflate
from engine.format.quantities import counted, parse_size
from rstore_cli._common import settings_of
from rstore_cli.cluster import NameServers, Namespace, TlsCa, client_of
from rstore_cli.given_messages import body_of, properties_of
from rstore_cli.put_lines import open_lines, parsed
from rstore_cli.render import printable

if TYPE_CHECKING:
    from io import BufferedReader

    from engine.client.messages import OutgoingMessage
    from engine.client.send_run import SendRun
    from engine.client.sending import SendResult
    from rstore_cli._common import Settings

app = typer.Typer(add_completion=False, rich_markup_mode=None)
AT_ONCE = 32
_CORRECT = "the lines before it were sent; correct it and send the rest"


@app.command()
def send(
    context: typer.Context,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Optional with --jsonl: each line names its topic.")
    ] = None,
    namesrv: NameServers = None,
    body: Annotated[str | None, typer.Option("--body", metavar="TEXT", help="The body as text.")] = None,
    body_file: Annotated[Path | None, typer.Option("--body-file", metavar="FILE", help="File with the body.")] = None,
    lines: Annotated[
        str | None, typer.Option("--lines", metavar="FILE", help="A message for each line of a file; - is stdin.")
    ] = None,
    jsonl: Annotated[
        str | None,
        typer.Option("--jsonl", metavar="FILE", help="Read messages from JSON lines, as get prints them; - is stdin."),
    ] = None,
    tags: Annotated[str | None, typer.Option("--tags", metavar="TAG", help="Tag (TAGS).")] = None,
    keys: Annotated[
        str | None, typer.Option("--keys", metavar="KEYS", help="Keys (KEYS), separated by blanks.")
    ] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property (repeatable).")
    ] = None,
    delay_level: Annotated[
        int, typer.Option("--delay-level", min=0, metavar="N", help="Delay level, as in messageDelayLevel.")
    ] = 0,
    compression: Annotated[
        CompressionType,
        typer.Option("--compression", case_sensitive=False, help="With what larger bodies are compressed."),
    ] = CompressionType.ZLIB,
    compress_above: Annotated[
        str, typer.Option("--compress-above", metavar="BYTES", help="Bodies of this size and larger are compressed.")
    ] = "4K",
    group: Annotated[str, typer.Option("--group", metavar="NAME", help="Producer group.")] = "rstore-send",
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="Send N equal messages, for load tests.")
    ] = None,
    body_size: Annotated[
        str | None, typer.Option("--size", metavar="BYTES", help="Body size with --count (default: 1K).")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, metavar="N", help="Messages a second at most.")
    ] = None,
    at_once: Annotated[
        int | None,
        typer.Option(
            "--at-once",
            min=1,
            metavar="N",
            help="Sends in flight at a time (default: 1; 32 with --count).",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Time limit of a send, with its retries.")
    ] = 3.0,
    namespace: Namespace = "",
    tls_ca: TlsCa = None,
) -> None:
    """Send messages to a running cluster, Apache's or rstore's: of --namesrv, or the daemon of --store.

    A send is tried again on another broker. The first message that fails ends the command, and the number of sent
    messages is shown. The account for brokers with an ACL is taken from RSTORE_ACCESS_KEY and RSTORE_SECRET_KEY.
    """
    settings = settings_of(context)
    if sum(value is not None for value in (body, body_file, lines, jsonl)) + (body_size is not None) > 1:
        raise InvalidArgument("--body, --body-file, --lines, --jsonl and --size exclude each other")
    if jsonl is not None and (count, tags, keys, properties, delay_level) != (None, None, None, None, 0):
        raise InvalidArgument("with --jsonl each line has its own tags, keys and properties")
    if body_size is not None and count is None:
        raise InvalidArgument("--size requires --count")
    config = client_of(context, namesrv, namespace, tls_ca)

    from engine.client.messages import OutgoingMessage
    from engine.client.producer import ProducerSettings
    from engine.client.send_run import SendOrders, repeated, send_all

    shape = ProducerSettings(
        timeout_s=timeout,
        compress_above=parse_size(compress_above, "--compress-above"),
        compression=compression,
    )
    reads = (lines, jsonl) != (None, None)
    orders = SendOrders(group, at_once or (1 if count is None else AT_ONCE), rate, reads, shape)
    sent = _Sent(settings, shows=count is None)
    with ExitStack() as stack:
        if jsonl is not None:
            messages = _from_json(open_lines(stack, jsonl), jsonl, topic)
        elif topic is None:
            raise InvalidArgument("TOPIC is required", hint="rstore send TOPIC --body TEXT")
        else:
            model = OutgoingMessage(
                topic, b"", tags, tuple((keys or "").split()), properties_of(properties), delay_level
            )
            if lines is not None:
                messages = _from_lines(_opened(stack, lines), model)
            else:
                payload = body_of(body, body_file, None if count is None else body_size or "1K")
                if payload is None:
                    hint = "--body TEXT, --body-file FILE, --lines FILE or --jsonl FILE"
                    raise InvalidArgument("a body is required", hint=hint)
                messages = repeated(replace(model, body=payload), count or 1)
        run = send_all(config, messages, orders, sent.note)
    sent.end(run)


class _Sent:
    """Shows what was sent. `shows`: each message, too."""

    def __init__(self, settings: Settings, *, shows: bool) -> None:
        self._settings = settings
        self._output = settings.output()
        self._shows = shows
        self._count = 0
        self._other: Counter[str] = Counter()
        settings.on_interrupt = "no message was sent"

    def note(self, _: OutgoingMessage, result: SendResult) -> None:
        """One is stored."""
        self._count += 1
        if result.status.name != "SEND_OK":
            self._other[result.status.words] += 1
        self._settings.on_interrupt = f"{counted(self._count, 'message was', 'messages were')} sent"
        if self._shows:
            if self._output.json:
                self._output.line(_row(result))
            else:
                self._output.text(_line(result))
            sys.stdout.flush()  # who reads a pipe sees it before the next line comes

    def end(self, run: SendRun) -> None:
        """Say how many there were. Raises what ended the run."""
        for words, count in self._other.items():
            self._output.warn(f"! {counted(count, 'message')}: {words}")
        if run.problem is not None:
            if self._count:
                self._output.note(f"{counted(self._count, 'message was', 'messages were')} sent before")
            raise run.problem
        if self._output.json:
            if not self._shows:
                self._output.document({"sent": run.sent, "seconds": round(run.seconds, 3)})
        elif not self._shows or run.sent != 1:
            rate = run.sent / max(run.seconds, 1e-9)
            self._output.text(f"{counted(run.sent, 'message')} in {run.seconds:.1f} s: {rate:,.0f} a second")


def _row(result: SendResult) -> dict[str, object]:
    return {
        "status": result.status.name,
        "msgId": result.id,
        "offsetMsgId": result.offset_id,
        "topic": result.queue.topic,
        "broker": result.queue.broker,
        "queueId": result.queue.queue_id,
        "queueOffset": result.queue_offset,
    }


def _line(result: SendResult) -> str:
    queue = result.queue
    return (
        f"{result.status.name}  {printable(queue.topic)}/{queue.queue_id} of {printable(queue.broker)} "
        f"at {result.queue_offset}  id {result.id}"
    )


def _opened(stack: ExitStack, name: str) -> BinaryIO:
    """A file, closed with the stack; "-" is stdin. Raises StorageError."""
    if name == "-":
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(name).open("rb"))
    except OSError as error:
        raise from_os_error(error, "reading messages", name) from None


def _from_lines(lines: BinaryIO, model: OutgoingMessage) -> Iterator[OutgoingMessage]:
    """A message a line, without its end; empty lines are none."""
    for line in lines:
        if text := line.rstrip(b"\r\n"):
            yield replace(model, body=text)


def _from_json(lines: BufferedReader, name: str, topic: str | None) -> Iterator[OutgoingMessage]:
    from engine.client.messages import OWN, OutgoingMessage
    from engine.format.hosts import LOOPBACK
    from engine.format.properties import DELAY, KEYS, TAGS

    blocks = parsed(lines, name, topic, None, LOOPBACK, hint=_CORRECT)
    for message in itertools.chain.from_iterable(blocks):
        words = dict(message.properties)
        level = words.get(DELAY, "0")
        plain = inflate(message.body, message.sys_flag)
        yield OutgoingMessage(
            message.topic,
            message.body if plain is None else plain,
            words.get(TAGS),
            tuple(words.get(KEYS, "").split()),
            {key: value for key, value in words.items() if key not in OWN},
            int(level) if level.isdecimal() else 0,
            message.flag,
        )
