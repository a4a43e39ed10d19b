"""`rstore get`: messages of a queue, or one by its id or its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import FormatError, InvalidArgument
from engine.format.quantities import counted
from rstore_cli._common import FOUND, parse_size, parse_time, settings_of
from rstore_cli.render import say_not_read

if TYPE_CHECKING:
    from engine.format.message import StoredMessage
    from engine.log.filters import TagFilter
    from engine.read_store import ReadStore
    from rstore_cli.message_rows import Shower

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_AT_ONCE = 32


@app.command()
def get(
    context: typer.Context,
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="With --msg-id it may be left out.")] = None,
    queue: Annotated[int | None, typer.Argument(metavar="QUEUE", min=0)] = None,
    offset: Annotated[
        int | None, typer.Argument(metavar="OFFSET", min=0, help="First queue offset (default: the queue's first).")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, metavar="N", help="At most so many messages.")] = 32,
    tags: Annotated[
        str | None, typer.Option("--tags", metavar="EXPR", help="Only with these tags: 'TagA || TagB'.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="TIME", help="From the first message stored then: ISO 8601, epoch ms, '2 hours ago'."
        ),
    ] = None,
    msg_id: Annotated[
        str | None,
        typer.Option("--msg-id", metavar="ID", help="The id that a broker gave, or a client (UNIQ_KEY)."),
    ] = None,
    physical_offset: Annotated[
        str | None, typer.Option("--physical-offset", metavar="N", help="The message at this place in the log.")
    ] = None,
    decompress: Annotated[bool, typer.Option("--decompress", help="Show zlib-compressed bodies as sent.")] = False,
) -> None:
    """Show messages of a queue, or one by its id or place.

    Reads only, and runs beside a live broker.
    """
    settings = settings_of(context)
    output = settings.output()
    by_place = [value for value in (msg_id, physical_offset) if value is not None]
    if len(by_place) > 1 or (by_place and queue is not None) or (physical_offset is not None and topic is not None):
        raise InvalidArgument("give a queue, --msg-id (with a topic or without) or --physical-offset, one of them")
    if not by_place and (topic is None or queue is None):
        raise InvalidArgument("which queue?", hint="rstore get TOPIC QUEUE [OFFSET], --msg-id or --physical-offset")
    if at is not None and offset is not None:
        raise InvalidArgument("--at and OFFSET exclude each other")
    time = None if at is None else parse_time(at, "--at")
    place = None if physical_offset is None else parse_size(physical_offset, "--physical-offset")
    config = settings.load()

    from engine.files.disk import Disk
    from engine.log.filters import TagFilter
    from engine.read_store import ReadStore
    from engine.repair.not_read import not_read
    from rstore_cli.message_rows import A_BODY, ONE_BODY, Shower

    with ReadStore(config) as store:
        say_not_read(output, config.typed, not_read(Disk(), config))
        show = Shower(output, decompress=decompress, limit=ONE_BODY if by_place else A_BODY)
        if msg_id is not None:
            for message in store.find_message(msg_id, topic):
                show.show(message)
        elif place is not None:
            show.show(_at(store, place))
        elif topic is not None and queue is not None:
            start = store.lower_bound(topic, queue, time) if time is not None else offset
            _queue(store, show, topic, queue, start, count, None if tags is None else TagFilter.parse(tags))
    if show.bad:
        raise typer.Exit(FOUND)


def _at(store: ReadStore, place: int) -> StoredMessage:
    found = store.look_message(place)
    if found is None:
        raise InvalidArgument(f"no message at {place}", path=store.files.root, hint=store.log_range)
    return found


def _queue(
    store: ReadStore,
    show: Shower,
    topic: str,
    queue_id: int,
    start: int | None,
    count: int,
    tags: TagFilter | None,
) -> None:
    from engine.format.message import decode

    queue = store.find_queue(topic, queue_id)
    if queue is None:
        from engine.files.disk import Disk
        from engine.repair.known_names import KnownNames

        KnownNames.of(Disk(), store.files).demand_queue(topic, queue_id)
        show.output.note(f"no such messages: nothing was ever put into {topic}/{queue_id}")
        return
    low, high = queue.min_offset, queue.max_offset
    at = low if start is None else start
    if at < low:
        show.output.note(f"note: the queue begins at {low}")
        at = low
    shown = gone = 0
    while shown < count and at < high:
        result = store.get(topic, queue_id, at, min(_AT_ONCE, count - shown), tags)
        for record in result.messages:
            try:
                show.show(decode(record))
            except FormatError as error:
                show.broken(f"{topic}/{queue_id}", error)
        shown += result.message_count
        if result.next_begin_offset <= at:
            break
        if not result.messages and tags is None:
            gone += result.next_begin_offset - at
        at = result.next_begin_offset
    if gone:
        show.output.note(
            f"note: {counted(gone, 'offset points', 'offsets point')} at messages that are not in the log (any more)"
        )
    if not shown:
        show.output.note(f"no such messages: {topic}/{queue_id} holds offsets {low} to {high}")
    elif at < high and shown == count:
        show.output.note(f"more: rstore get {topic} {queue_id} {at}")
