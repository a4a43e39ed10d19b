"""`rstore consume`: messages of a running cluster, with a group or without."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import InvalidArgument, NoRoute, PeerLost, RStoreError
from engine.format.message_json import is_compressed
from rstore_cli._common import FOUND, parse_time, settings_of
from rstore_cli.cluster import NameServers, Namespace, TlsCa, client_of, demand_topic
from rstore_cli.exec_command import MessageProgram
from rstore_cli.message_format import parse_format
from rstore_cli.message_rows import show_plain
from rstore_cli.render import printable

if TYPE_CHECKING:
    from engine.client.client import ClientConfig
    from engine.client.consumer_settings import ConsumerSettings
    from engine.client.messages import ReceivedMessage
    from engine.client.topic_reader import ReadFrom
    from rstore_cli.render import Output

    Show = Callable[[ReceivedMessage], None]
    Take = Callable[[ReceivedMessage], Awaitable[bool]]

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_PATIENCE_S = 0.2
"""A message that is being shown ends in that time."""
_PROGRAM_S = 10.0
"""A program that is running when the command ends has this time."""


@app.command()
def consume(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    namesrv: NameServers = None,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="NAME", help="Consume as this group, until Ctrl-C: offsets are committed."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new messages, too.")] = False,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Start at the first message.")] = False,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="Start at this store time: ISO 8601, epoch ms, '2 hours ago'."),
    ] = None,
    tags: Annotated[
        str | None, typer.Option("--tags", metavar="EXPR", help="Only messages with one of these tags: 'TagA || TagB'.")
    ] = None,
    sql: Annotated[
        str | None, typer.Option("--sql", metavar="EXPR", help="Only messages that this SQL92 expression selects.")
    ] = None,
    queue: Annotated[
        int | None, typer.Option("--queue", min=0, metavar="N", help="This queue alone; not with --group.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, metavar="N", help="Maximum messages.")] = None,
    message_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="TEXT",
            help="Print each message so: %t topic, %p queue, %o offset, %k keys, %s body, %S its size, \\n (as kcat).",
        ),
    ] = None,
    program: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="COMMAND",
            help="Run COMMAND for each message: body on stdin, the rest in RSTORE_MESSAGE_*; exit 0 = consumed.",
        ),
    ] = None,
    namespace: Namespace = "",
    tls_ca: TlsCa = None,
) -> None:
    """Show messages of a running cluster, Apache's or rstore's, as they come: of --namesrv, or the daemon of --store.

    Without --group nothing is committed: messages from --from-beginning or --at up to the end, with -f until Ctrl-C;
    exit code 1 if no message was found. With --group the broker keeps the group's offsets. The account for brokers
    with an ACL is taken from RSTORE_ACCESS_KEY and RSTORE_SECRET_KEY.

    --exec needs --group and uses no shell. A message whose command fails is given back, and comes again later. Further
    letters of --format: %K size of keys, %T store time, %h properties, %b broker, %g tags, %i id, %% a percent sign.
    """
    settings = settings_of(context)
    output = settings.output()
    if at is not None and from_beginning:
        raise InvalidArgument("--at and --from-beginning exclude each other")
    if tags is not None and sql is not None:
        raise InvalidArgument("--tags and --sql exclude each other")
    if group is not None and queue is not None:
        raise InvalidArgument("--queue and --group exclude each other", hint="a group has all queues of a topic")
    if program is not None and group is None:
        raise InvalidArgument("--exec requires --group", hint="the broker keeps what a group has not consumed")
    if program is not None and (message_format is not None or output.json):
        raise InvalidArgument("--exec excludes --format and --json", hint="the command prints what it will")
    if message_format is not None and output.json:
        raise InvalidArgument("--format and --json exclude each other")
    if group is None and not (follow or from_beginning or at is not None):
        raise InvalidArgument("nothing would be shown", hint="--from-beginning, --at TIME, -f or --group NAME")
    time_ms = None if at is None else parse_time(at, "--at")
    show = _shown(output, message_format)
    runs = None if program is None else MessageProgram(program)
    config = client_of(context, namesrv, namespace, tls_ca)

    from engine.client.subscriptions import ALL, SQL92, TAG
    from engine.client.topic_reader import ReadFrom

    wanted = (sql, SQL92) if sql is not None else (tags or ALL, TAG)
    settings.on_interrupt = "what was shown was consumed" if group is not None else "nothing was changed"
    if group is None:
        begin = ReadFrom(first=from_beginning, time_ms=time_ms)
        shown = asyncio.run(_read(config, topic, wanted, begin, show, queue=queue, follow=follow, count=count))
    else:
        consumer = _consumer_settings(time_ms, from_beginning=from_beginning, program=runs)
        take = _showing(show) if runs is None else _running(runs, output)
        shown = asyncio.run(_consume(config, topic, wanted, group, consumer, take, count))
    if not shown:
        raise typer.Exit(FOUND)


def _consumer_settings(
    time_ms: int | None, *, from_beginning: bool, program: MessageProgram | None
) -> ConsumerSettings:
    from engine.client.consumer_settings import ConsumerSettings, StartFrom

    patience_s = _PATIENCE_S if program is None else _PROGRAM_S
    if time_ms is not None:
        return ConsumerSettings(start=StartFrom.TIMESTAMP, start_ms=time_ms, at_once=1, patience_s=patience_s)
    start = StartFrom.FIRST_OFFSET if from_beginning else StartFrom.LAST_OFFSET
    return ConsumerSettings(start=start, at_once=1, patience_s=patience_s)


def _shown(output: Output, message_format: str | None) -> Show:
    """What shows a message. Raises InvalidArgument: no format."""
    made = None if message_format is None else parse_format(message_format)

    def show(message: ReceivedMessage) -> None:
        if made is not None:
            _note_packed(output, message)
            sys.stdout.flush()
            sys.stdout.buffer.write(made(message))
            sys.stdout.buffer.flush()
        else:
            show_plain(output, message.stored)
            sys.stdout.flush()  # it counts as consumed from here on

    return show


def _showing(show: Show) -> Take:
    async def take(message: ReceivedMessage) -> bool:
        show(message)
        return True

    return take


def _running(program: MessageProgram, output: Output) -> Take:
    """Whether the program has consumed a message; what it did not, is said."""

    async def take(message: ReceivedMessage) -> bool:
        _note_packed(output, message)
        code = await program.run(message)
        if code:
            queue = message.queue
            how = f"exited with {code}" if code > 0 else f"was ended by signal {-code}"
            output.warn(
                f"! message {message.queue_offset} of {printable(queue.topic)}/{queue.queue_id} is given back: "
                f"its command {how}"
            )
        return code == 0

    return take


def _note_packed(output: Output, message: ReceivedMessage) -> None:
    """Say of a body that it is given as it is stored, for nothing in it does."""
    if is_compressed(message.stored) and message.body is message.stored.body:
        queue = message.queue
        output.warn(
            f"! the body of message {message.queue_offset} of {printable(queue.topic)}/{queue.queue_id} can't be "
            "decompressed: it is given as it is stored"
        )


async def _read(
    config: ClientConfig,
    topic: str,
    wanted: tuple[str, str],
    begin: ReadFrom,
    show: Show,
    *,
    queue: int | None,
    follow: bool,
    count: int | None,
) -> int:
    from engine.client.client import ClusterClient
    from engine.client.topic_reader import TopicReader

    shown = 0
    async with ClusterClient(config) as client:
        await demand_topic(client, topic)
        reader = TopicReader(client, topic, *wanted, queue_id=queue)
        async with aclosing(reader.messages(begin, follow=follow)) as messages:
            async for message in messages:
                show(message)
                shown += 1
                if shown == count:
                    break
    return shown


async def _leave_them() -> None:
    """End the task of a handler: its messages are neither consumed nor failed. The client waits for no such task."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.Event().wait()


async def _consume(
    config: ClientConfig,
    topic: str,
    wanted: tuple[str, str],
    group: str,
    settings: ConsumerSettings,
    take: Take,
    count: int | None,
) -> int:
    from engine.client.client import ClusterClient
    from engine.client.consumer_settings import ConsumeOutcome

    shown = 0
    done = asyncio.Event()
    problem: OSError | RStoreError | None = None

    async def handle(messages: Sequence[ReceivedMessage]) -> ConsumeOutcome:
        nonlocal shown, problem
        if done.is_set():
            await _leave_them()  # they are the next one's
        for message in messages:
            try:
                is_taken = await take(message)
            except (OSError, RStoreError) as error:  # nobody reads any more, a full disk, a program that is gone
                # No message can be shown or taken, and none failed.
                problem = error
                done.set()
                await _leave_them()
            if not is_taken:
                return ConsumeOutcome.LATER
            shown += 1
        if shown == count:
            done.set()
        return ConsumeOutcome.SUCCESS

    async with ClusterClient(config) as client, client.push_consumer(group, handle, settings) as consumer:
        await demand_topic(client, topic)
        await consumer.subscribe(topic, *wanted)
        with suppress(NoRoute, PeerLost):  # a broker that is away is waited for
            for queue in (await consumer.queues_of(topic))[:1]:
                await consumer.committed(queue)  # else what a broker's ACL refuses is tried without an end
        await done.wait()
    if problem is not None:
        raise problem
    return shown
