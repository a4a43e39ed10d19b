"""`rstore admin message`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from engine.client.admin.rows import to_row
from engine.format.message_json import to_json
from engine.format.quantities import counted, parse_time
from rstore_cli._common import FOUND, settings_of
from rstore_cli.admin.asking import ATopic, ask, show
from rstore_cli.admin.nouns import Noun
from rstore_cli.messages import to_text
from rstore_cli.render import printable

if TYPE_CHECKING:
    from engine.client.admin.messages import MessageTrace
    from engine.client.admin.session import AdminSession
    from engine.client.client import ClusterClient
    from engine.format.message import StoredMessage
    from rstore_cli.render import Output

app = Noun("Messages by id, key or queue offset; units of queues.")


def _show(output: Output, message: StoredMessage, traces: tuple[MessageTrace, ...] | None = None) -> None:
    if output.json:
        more = {} if traces is None else {"groups": to_row(traces)}
        output.line({**to_json(message, decompress=True), **more})
        return
    for line in to_text(message, decompress=True):
        output.raw(line)
    for one in traces or ():
        output.raw(f"  group {printable(one.group)}: {one.state}")


@app.asks("id")
def id_(
    context: typer.Context,
    message: Annotated[str, typer.Argument(metavar="ID", help="The broker's id, or the producer's with --topic.")],
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="NAME", help="The message's topic, for the id of a producer.")
    ] = None,
) -> None:
    """Show a message, and what each group has made of it. Exit code 1 if nothing was found."""
    from engine.client.admin.messages import message_by_id, traces_of

    async def work(_: ClusterClient, admin: AdminSession) -> tuple[StoredMessage, tuple[MessageTrace, ...]]:
        stored = await message_by_id(admin, message, topic)
        return stored, await traces_of(admin, stored)

    _show(settings_of(context).output(), *ask(context, work))


@app.asks()
def key(
    context: typer.Context,
    topic: ATopic,
    word: Annotated[str, typer.Argument(metavar="KEY")],
    begin: Annotated[str | None, typer.Option("--begin", metavar="TIME", help="Stored at this time or later.")] = None,
    end: Annotated[str | None, typer.Option("--end", metavar="TIME", help="Stored at this time or earlier.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum messages.")] = 64,
) -> None:
    """Show messages with a key, oldest first. Exit code 1 if nothing was found."""
    from engine.client.admin.messages import messages_by_key

    begin_ms = 0 if begin is None else parse_time(begin, "--begin")
    end_ms = None if end is None else parse_time(end, "--end")
    rows = ask(
        context,
        lambda _, admin: messages_by_key(admin, topic, word, begin_ms=begin_ms, end_ms=end_ms, most=limit),
    )
    output = settings_of(context).output()
    for one in rows:
        _show(output, one)
    if not rows:
        output.note(f"No message of topic {printable(topic)} has the key {printable(word)}.")
        raise typer.Exit(FOUND)


@app.asks()
def offset(
    context: typer.Context,
    topic: ATopic,
    queue: Annotated[int, typer.Argument(metavar="QUEUE", min=0, help="The queue id.")],
    number: Annotated[int, typer.Argument(metavar="OFFSET", min=0, help="The queue offset.")],
    broker: Annotated[
        str | None, typer.Option("--broker", metavar="NAME", help="The broker that has the queue.")
    ] = None,
) -> None:
    """Show the message at a queue offset. Exit code 1 if nothing was found."""
    from engine.client.admin.messages import message_at, queue_of

    async def work(client: ClusterClient, admin: AdminSession) -> StoredMessage:
        place = await queue_of(admin, topic, broker, queue)
        return await message_at(client, place, number)

    _show(settings_of(context).output(), ask(context, work))


@app.asks()
def units(
    context: typer.Context,
    topic: ATopic,
    queue: Annotated[int, typer.Argument(metavar="QUEUE", min=0, help="The queue id.")],
    broker: Annotated[
        str | None, typer.Option("--broker", metavar="NAME", help="The broker that has the queue.")
    ] = None,
    begin: Annotated[int, typer.Option("--from", min=0, metavar="OFFSET", help="First queue offset.")] = 0,
    limit: Annotated[int, typer.Option("--limit", min=1, max=800, metavar="N", help="Maximum units.")] = 10,
    group: Annotated[str | None, typer.Option("--group", metavar="NAME", help="Try the filter of this group.")] = None,
) -> None:
    """Show units of a queue at its broker."""
    from engine.client.admin.messages import QueueUnits, queue_of, queue_units

    async def work(_: ClusterClient, admin: AdminSession) -> QueueUnits:
        return await queue_units(admin, await queue_of(admin, topic, broker, queue), begin, limit, group)

    answer = ask(context, work)
    output = settings_of(context).output()
    if output.json:
        output.document(to_row(answer))
        return
    output.text(
        f"The queue has {answer.min_offset} to {answer.max_offset}: {counted(len(answer.units), 'unit')} of it."
    )
    columns = [
        ("queue offset", lambda one: one.queue_offset),
        ("physical offset", lambda one: one.physical_offset),
        ("size", lambda one: one.size),
        ("tags code", lambda one: one.tags_code),
        ("filter", lambda one: {None: "", True: "takes it", False: "passes it over"}[one.evaluated]),
        ("", lambda one: one.problem),
    ]
    show(output, answer.units, columns, "")
