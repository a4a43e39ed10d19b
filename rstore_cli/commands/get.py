"""`rstore get`: messages of a queue, or one by its id or its place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import FormatError, InvalidArgument, NextStep, StorageError
from engine.format.quantities import counted, moment
from rstore_cli._common import FOUND, parse_size, parse_time, settings_of
from rstore_cli.render import say_not_read

if TYPE_CHECKING:
    from engine.log.results import GetResult
    from engine.read_store import ReadStore
    from rstore_cli.message_rows import Shower

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_AT_ONCE = 32


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
    decompress: Annotated[bool, typer.Option("--decompress", help="Decompress zlib-compressed bodies.")] = False,
) -> None:
    """Show messages of a queue, or one by message id or physical offset.

    Reads only; a broker may be running.
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
    config = settings.load()

    from engine.files.disk import Disk
    from engine.format.properties import UNIQ_KEY
    from engine.inspect.store.not_read import not_read
    from engine.read_store import ReadStore
    from rstore_cli.message_rows import A_BODY, ONE_BODY, Shower

    with ReadStore(config) as store:
        say_not_read(output, config.typed, not_read(Disk(), config))
        show = Shower(output, config, decompress=decompress, limit=ONE_BODY if by_place else A_BODY)
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
            start = store.lower_bound(topic, queue, time) if time is not None else offset
            options = [
                word for name, value in (("--tags", tags), ("--count", count)) if value for word in (name, str(value))
            ]
            options += [name for name, is_on in (("--decompress", decompress), ("--json", output.json)) if is_on]
            asked = _Asked(topic, queue, count, tags, time, tuple(options))
            _queue(store, show, asked, start)
    if show.bad or (time is not None and not show.shown):
        raise typer.Exit(FOUND)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Messages of a queue. `tags`: only with these; `time`: stored then (ms) or later; `options`: as typed."""

    topic: str
    queue_id: int
    count: int
    tags: str | None
    time: int | None
    options: tuple[str, ...]

    def words(self, offset: int) -> tuple[str, ...]:
        """The command that goes on at a queue offset."""
        from engine.inspect.next_step import arguments

        return ("get", *self.options, *arguments(self.topic, str(self.queue_id), str(offset)))


def _queue(store: ReadStore, show: Shower, asked: _Asked, start: int | None) -> None:
    from engine.format.message import decode
    from engine.inspect.next_step import command_line

    topic, queue_id, count = asked.topic, asked.queue_id, asked.count
    queue = store.find_queue(topic, queue_id)
    if queue is None:
        _without_files(store, show, asked)
        return
    low, high = queue.min_offset, queue.max_offset
    at = low if start is None else start
    if at < low:
        show.output.note(f"note: the queue starts at {low}")
        at = low
    shown = gone = 0
    most = _AT_ONCE
    while shown < count and at < high:
        result = _part(store, asked, at, high, min(most, count - shown))
        if result is None:
            most = 1  # what lies in front of the page that can't be read is shown
            continue
        for record in result.messages:
            try:
                show.show(decode(record))
            except FormatError as error:
                show.broken(f"{topic}/{queue_id}", error)
        shown += result.message_count
        if result.next_begin_offset <= at:
            break
        if asked.tags is None:
            gone += result.next_begin_offset - at - result.message_count
        at = result.next_begin_offset
    config = store.files.config
    if gone:
        show.bad += gone
        show.output.warn(
            f"! {counted(gone, 'offset points', 'offsets point')} at no sound message. "
            f"Next: {command_line(config, 'check')}"
        )
    if not shown and asked.time is not None and start is not None and start >= high > low:
        newest = moment(store.message_store_timestamp(topic, queue_id, high - 1))
        last = command_line(config, *replace(asked, options=()).words(high - 1))
        show.output.note(
            f"no message of {topic}/{queue_id} was stored at {moment(asked.time)} or later: its newest was at "
            f"{newest}. Next: {last} (shows that one)"
        )
    elif not shown:
        show.output.note(f"no such messages: {topic}/{queue_id} holds offsets {low} to {high}")
    elif at < high and shown == count:
        show.output.note(f"more: {command_line(config, *asked.words(at))}")


def _part(store: ReadStore, asked: _Asked, at: int, high: int, most: int) -> GetResult | None:
    """The next messages of the queue, `most` at most; None: one of them can't be read, and fewer may do.

    Raises StorageError: the only one that is asked for can't be read.
    """
    from engine.log.filters import TagFilter

    tags = None if asked.tags is None else TagFilter.parse(asked.tags)
    try:
        return store.get(asked.topic, asked.queue_id, at, most, tags)
    except StorageError as error:
        if most == 1:
            raise _beyond(store, asked, at, high, error) from error
        return None


def _beyond(store: ReadStore, asked: _Asked, at: int, high: int, error: StorageError) -> StorageError:
    """The error of a message that can't be read, with the command that shows what follows it.

    Args:
        store: whose queue it is.
        asked: what was asked for.
        at: queue offset of the message, or before it where tags are asked for.
        high: the queue's end.
        error: what the system said.
    """
    from engine.inspect.next_step import command_line, read

    config = store.files.config
    bad = at
    while asked.tags is not None and bad < high and _is_readable(store, asked, bad):
        bad += 1
    step = read(config)
    if bad + 1 < high:
        following = command_line(config, *asked.words(bad + 1))
        step = NextStep(following, f"shows the messages after the one at {bad}, which can't be read")
    return StorageError(error.message, path=error.path, offset=error.offset, next_step=step)


def _is_readable(store: ReadStore, asked: _Asked, offset: int) -> bool:
    try:
        store.get(asked.topic, asked.queue_id, offset, 1)
    except StorageError:
        return False
    return True


def _without_files(store: ReadStore, show: Shower, asked: _Asked) -> None:
    """Say why a queue that nothing is in has no files. Raises InvalidArgument: there is no such queue."""
    from engine.files.disk import Disk
    from engine.inspect.next_step import command_line
    from engine.inspect.store.known_names import KnownNames
    from engine.inspect.store.newer import TIMER, TIMER_TOPIC
    from engine.log.derive import TopicQueue

    KnownNames.of(Disk(), store.files).demand_queue(asked.topic, asked.queue_id)
    show.output.note(
        f"no such messages: {asked.topic}/{asked.queue_id} has no files: no message was put, or all were deleted"
    )
    if store.files.newer.has(TIMER) and TopicQueue(TIMER_TOPIC, 0) in store.queues():
        waiting = command_line(store.files.config, "get", TIMER_TOPIC, "0")
        show.output.note(
            f"note: messages for a later time wait in {TIMER_TOPIC}, the topic of each is REAL_TOPIC: {waiting}"
        )
