"""`rstore get`: messages of a queue, or one by its id or its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import FormatError, InvalidArgument
from rstore_cli._common import FOUND, parse_size, parse_time, settings_of
from rstore_cli.render import say_not_read

if TYPE_CHECKING:
    from engine.format.message import StoredMessage
    from engine.log.filters import TagFilter
    from engine.read_store import ReadStore
    from rstore_cli.render import Output

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_AT_ONCE = 32
_A_BODY, _ONE_BODY = 200, 20_000
"""Characters of a body that are shown: of one among many, and of the only one. --json shows all."""


@app.command()
def get(
    context: typer.Context,
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC")] = None,
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
        typer.Option("--at", metavar="TIME", help="From the first message stored then: ISO 8601, epoch ms, '2h ago'."),
    ] = None,
    msg_id: Annotated[
        str | None, typer.Option("--msg-id", metavar="ID", help="The message of this message id.")
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
    if len(by_place) > 1 or (by_place and topic is not None):
        raise InvalidArgument("give a queue, --msg-id or --physical-offset, one of them")
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

    with ReadStore(config) as store:
        say_not_read(output, config.typed, not_read(Disk(), config))
        show = _Shower(output, decompress, _ONE_BODY if by_place else _A_BODY)
        if topic is None or queue is None:
            show.show(_single(store, msg_id, place))
        else:
            start = store.lower_bound(topic, queue, time) if time is not None else offset
            _queue(store, show, topic, queue, start, count, None if tags is None else TagFilter.parse(tags))
    if show.bad:
        raise typer.Exit(FOUND)


class _Shower:
    """Shows messages, and counts those whose body isn't what its CRC says."""

    def __init__(self, output: Output, decompress: bool, limit: int) -> None:
        self.output = output
        self.bad = 0
        self._decompress = decompress
        self._limit = limit

    def show(self, message: StoredMessage) -> None:
        from rstore_cli.messages import to_json, to_text

        if self.output.json:
            self.output.line(to_json(message, decompress=self._decompress))
        else:
            for line in to_text(message, decompress=self._decompress, limit=self._limit):
                self.output.text(line)
        if not message.crc_ok:
            self.bad += 1
            self.output.warn(f"! the body at {message.physical_offset} is not what its CRC says: rstore verify-crc")

    def broken(self, queue: str, error: FormatError) -> None:
        """Bytes that a queue names and that are no record."""
        self.bad += 1
        self.output.warn(f"! a message of {queue} can't be read: {error.message}. Next: rstore verify-crc")


def _single(store: ReadStore, msg_id: str | None, place: int | None) -> StoredMessage:
    if msg_id is not None:
        found = store.look_by_msg_id(msg_id)
    else:
        assert place is not None
        found = store.look_message(place)
    if found is None:
        what = f"message {msg_id}" if msg_id is not None else f"message at {place}"
        low, high = store.log.min_offset, store.log.max_offset
        raise InvalidArgument(
            f"no {what}", path=str(store.config.store_path_root_dir), hint=f"the log holds offsets {low} to {high}"
        )
    return found


def _queue(
    store: ReadStore,
    show: _Shower,
    topic: str,
    queue_id: int,
    start: int | None,
    count: int,
    tags: TagFilter | None,
) -> None:
    from engine.format.message import decode

    queue = store.find_queue(topic, queue_id)
    if queue is None:
        from engine.repair.dump import known_queues

        raise InvalidArgument(f"no queue {topic}/{queue_id}", hint=known_queues(store.files, topic))
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
        show.output.note(f"note: {gone} offsets point at messages that are not in the log (any more)")
    if not shown:
        show.output.note(f"no such messages: {topic}/{queue_id} holds offsets {low} to {high}")
    elif at < high and shown == count:
        show.output.note(f"more: rstore get {topic} {queue_id} {at}")
