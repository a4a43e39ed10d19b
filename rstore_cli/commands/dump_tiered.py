"""`rstore dump tiered`: the messages in the tiered files of a RocketMQ 5 broker."""

from __future__ import annotations

import os
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import FOUND, settings_of
from rstore_cli.commands.dump_timer import Limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from engine.files.disk import Disk
    from engine.inspect.dump.tiered import TieredQueue, TieredRow
    from engine.inspect.dump.tiered_index import TieredIndexRow
    from engine.inspect.store.compaction import CompactedRow
    from rstore_cli.render import Output

_SETTING = "tieredStoreFilePath"
Row = TypeVar("Row", "TieredRow", "TieredIndexRow")


def tiered(
    context: typer.Context,
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="tieredStoreFilePath of the broker, or a directory in it."),
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.")] = None,
    queue: Annotated[int | None, typer.Option("--queue", min=0, metavar="N", help="Only this queue.")] = None,
    index: Annotated[
        bool, typer.Option("--index", help="The entries of its index files, in place of the messages.")
    ] = False,
    limit: Limit = None,
    redact: Annotated[bool, typer.Option("--redact", help="Leave bodies out.")] = False,
) -> None:
    """Show the messages in the tiered files of a RocketMQ 5 broker. Exit code 1 when there is damage.

    The files lie where its setting tieredStoreFilePath says (on this machine: the provider PosixFileSegment); DIR
    names them where no store is at hand.
    """
    settings = settings_of(context)
    output = settings.output()
    place = os.path.abspath(directory) if directory is not None else settings.load().other.get(_SETTING, "").strip()
    if not place:
        raise InvalidArgument(
            f"the store's settings have no {_SETTING}",
            hint="name its directory: rstore dump tiered DIR, or give the broker's conf: --config FILE",
        )

    from engine.files.disk import Disk
    from engine.inspect.dump.tiered import tiered_queues

    disk = Disk()
    if index:
        if topic is not None or queue is not None:
            raise InvalidArgument("--index has the entries of all topics: leave out --topic and --queue")
        _show(output, islice(_index_rows(disk, place), limit), index_line, index_text)
        return
    queues = tiered_queues(disk, place)
    chosen = [one for one in queues if topic in (None, one.topic) and queue in (None, one.queue_id)]
    if not chosen:
        known = ", ".join(sorted({f"{one.topic} {one.queue_id}" for one in queues})[:10])
        raise InvalidArgument(f"no such queue in the tiered files: there are {known}")
    rows = islice(_rows(disk, chosen), limit)
    _show(output, rows, partial(queue_line, redact=redact), partial(queue_text, redact=redact))


def _show(
    output: Output, rows: Iterable[Row], line: Callable[[Row], dict[str, Any]], text: Callable[[Row], str]
) -> None:
    """Each row; then, with damage among them, exit code 1."""
    damaged = False
    for row in rows:
        damaged |= row.reason is not None
        if output.json:
            output.line(line(row))
        else:
            output.raw(text(row))
    if damaged:
        raise typer.Exit(FOUND)


def _rows(disk: Disk, queues: list[TieredQueue]) -> Iterator[TieredRow]:
    from engine.config import StoreConfig
    from engine.inspect.dump.tiered import dump_tiered

    for one in queues:
        yield from dump_tiered(disk, one, max_message_size=StoreConfig().max_message_size)


def _index_rows(disk: Disk, place: str) -> Iterator[TieredIndexRow]:
    from engine.inspect.dump.tiered import tiered_queues
    from engine.inspect.dump.tiered_index import dump_tiered_index, tiered_indexes

    for directory in tiered_indexes(disk, place):
        broker = os.path.dirname(os.path.dirname(os.path.dirname(directory)))
        yield from dump_tiered_index(disk, directory, tiered_queues(disk, broker))


def index_line(row: TieredIndexRow) -> dict[str, Any]:
    """One entry of an index file, as JSON."""
    line: dict[str, Any] = {
        "kind": row.kind, "file": row.path, "position": row.position, "length": row.length, "slot": row.slot,
        "topic": row.topic, "storeTime": row.stored_ms, "reason": row.reason,
    }  # fmt: skip
    item = row.item
    return line | {
        "keyHash": item and item.key_hash, "topicId": item and item.topic_id, "queueId": item and item.queue_id,
        "offset": item and item.offset, "size": item and item.size,
    }  # fmt: skip


def index_text(row: TieredIndexRow) -> str:
    """The same, for people."""
    from engine.format.quantities import moment

    lines = []
    if row.item is not None:
        topic = row.topic or f"topic {row.item.topic_id}"
        lines.append(
            f"hash {row.item.key_hash:>10} in slot {row.slot}: {topic} {row.item.queue_id}, {row.item.size} bytes at "
            f"{row.item.offset}, stored {moment(row.stored_ms or 0)}"
        )
    if row.reason is not None:
        lines.append(f"! damage at {row.position}, {row.length} bytes, in {row.path}: {row.reason}")
    return "\n".join(lines)


def queue_line(row: TieredRow | CompactedRow, redact: bool) -> dict[str, Any]:
    """One thing in the copy of a queue, as JSON."""
    from engine.format.message_json import to_json

    line: dict[str, Any] = {
        "kind": row.kind, "topic": row.queue.topic, "queueId": row.queue.queue_id, "offset": row.offset,
        "length": row.length, "queueOffset": row.queue_offset, "file": row.path, "reason": row.reason,
    }  # fmt: skip
    return line | {"message": None if row.message is None else to_json(row.message, redact=redact)}


def queue_text(row: TieredRow | CompactedRow, redact: bool) -> str:
    """The same, for people."""
    from rstore_cli.messages import to_text
    from rstore_cli.render import size

    name = f"{row.queue.topic} {row.queue.queue_id}"
    lines = [] if row.message is None else to_text(row.message, redact=redact)
    if row.message is None and row.reason is None:
        lines = [f"blank at {row.offset}, {size(row.length)}: {name}"]
    if row.reason is not None:
        lines.append(f"! damage in {name} at {row.offset}, {size(row.length)}, in {row.path}: {row.reason}")
    elif row.message is not None and row.queue_offset is None:
        lines.append("  in no queue yet")
    return "\n".join(lines)
