"""`rstore get`: messages of a queue, or one by its id or its place."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import FormatError, InvalidArgument
from rstore_cli._common import FOUND, parse_size, parse_time, settings_of
from rstore_cli.render import say_not_read
from rstore_cli.repository import Archive, ArchiveName, ArchiveOptions, KeyCommand, KeyFile

if TYPE_CHECKING:
    from engine.read_queue import BatchQueueReading, QueueReading
    from engine.read_store import ReadStore
    from rstore_cli.message_rows import Shower

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def get(
    context: typer.Context,
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="Optional with --msg-id.")] = None,
    queue: Annotated[int | None, typer.Argument(metavar="QUEUE", min=0)] = None,
    offset: Annotated[
        int | None,
        typer.Argument(metavar="OFFSET", min=0, help="First queue offset (default: the lowest of the queue)."),
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, metavar="N", help="Maximum messages.")] = 32,
    tags: Annotated[
        str | None, typer.Option("--tags", metavar="EXPR", help="Only messages with one of these tags: 'TagA || TagB'.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="Start at this store time: ISO 8601, epoch ms, '2 hours ago'."),
    ] = None,
    msg_id: Annotated[
        str | None,
        typer.Option("--msg-id", metavar="ID", help="A message id: the broker's, or the client's (UNIQ_KEY)."),
    ] = None,
    physical_offset: Annotated[
        str | None, typer.Option("--physical-offset", metavar="N", help="The message at this physical offset.")
    ] = None,
    decompress: Annotated[bool, typer.Option("--decompress", help="Decompress bodies (zlib, lz4, zstd).")] = False,
    archive: Archive = None,
    archive_name: ArchiveName = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
) -> None:
    """Show messages of a queue, or one by message id or physical offset.

    Reads only; a broker may be running. With --archive messages that rstore expire --archive has deleted are read where
    they are kept.
    """
    settings = settings_of(context)
    output = settings.output()
    by_place = [value for value in (msg_id, physical_offset) if value is not None]
    if len(by_place) > 1 or (by_place and queue is not None) or (physical_offset is not None and topic is not None):
        raise InvalidArgument("a queue, --msg-id (with a topic or without) and --physical-offset exclude each other")
    if not by_place and (topic is None or queue is None):
        raise InvalidArgument(
            "QUEUE is required", hint="rstore get TOPIC QUEUE [OFFSET], --msg-id or --physical-offset"
        )
    if at is not None and offset is not None:
        raise InvalidArgument("--at and OFFSET exclude each other")
    time = None if at is None else parse_time(at, "--at")
    place = None if physical_offset is None else parse_size(physical_offset, "--physical-offset")
    archived = ArchiveOptions(archive, archive_name, key_file, key_command)
    archived.demand_archive()
    config = settings.load(numpy=True)

    from engine.files.disk import Disk
    from engine.format.properties import UNIQ_KEY
    from engine.inspect.store.not_read import not_read
    from engine.read_queue import QueueRequest, open_reading
    from rstore_cli.message_rows import A_BODY, ONE_BODY, Shower

    with archived.open_store(config) as store:
        say_not_read(output, config.typed, not_read(Disk(), config))
        below = store.archived_below
        limit = ONE_BODY if by_place else A_BODY
        show = Shower(output, config, decompress=decompress, limit=limit, archived_below=below)
        if msg_id is not None:
            for message in store.find_message(msg_id, topic):
                if msg_id.upper() not in (message.msg_id, message.properties.get(UNIQ_KEY, "").upper()):
                    output.note(
                        f"note: no message has the id {msg_id}: it names another broker; this message is at its offset"
                    )
                show.show(message)
        elif place is not None:
            show.show(store.message_at(place))
        elif topic is not None and queue is not None:
            options = [
                word for name, value in (("--tags", tags), ("--count", count)) if value for word in (name, str(value))
            ]
            options += [name for name, is_on in (("--decompress", decompress), ("--json", output.json)) if is_on]
            options += archived.words
            request = QueueRequest(topic, queue, count, offset, tags, time, tuple(options))
            in_blocks = output.json and not (output.ascii or decompress or tags or below is not None)
            _show_queue(store, open_reading(store, request), show, in_blocks=in_blocks)
        show.tell_archived(archive or "")
    if show.bad or (time is not None and not show.shown):
        raise typer.Exit(FOUND)


def _show_queue(store: ReadStore, reading: QueueReading | BatchQueueReading, show: Shower, *, in_blocks: bool) -> None:
    """`in_blocks`: many messages may be shown at once."""
    from engine.read_queue import QueueReading

    for text in reading.before:
        show.output.note(text)
    sound = 0
    if in_blocks and isinstance(reading, QueueReading):
        sound = _show_sound(store, reading, show)
    if sound and isinstance(reading, QueueReading) and sound == reading.expected:
        reading.end_after(sound)
    else:
        for message in islice(reading, sound, None):
            if isinstance(message, FormatError):
                show.broken(reading.queue, message)
            else:
                show.show(message)
    if reading.gone:
        show.gone(reading.gone)
    for text in reading.after:
        show.output.note(text)


def _show_sound(store: ReadStore, reading: QueueReading, show: Shower) -> int:
    """The first messages of a reading, many at once, while nothing is wrong; how many."""
    from rstore_cli.blocks import BlockWriter
    from rstore_cli.queue_lines import MANY, show_sound

    if reading.expected < MANY:
        return 0
    with BlockWriter(ascii=False) as writer:
        shown = show_sound(reading, store.log.source, show.output.encoded, writer)
    show.shown += shown
    return shown
