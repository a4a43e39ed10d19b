"""`rstore dump compaction`: the copies that a RocketMQ 5 broker keeps of compacted topics."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import FOUND, settings_of
from rstore_cli.commands.dump_tiered import queue_line, queue_text
from rstore_cli.commands.dump_timer import Limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.files.disk import Disk
    from engine.inspect.store.compaction import CompactedQueue, CompactedRow


def compaction(
    context: typer.Context,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Only this topic.", show_default=False)] = None,
    queue: Annotated[
        int | None, typer.Argument(metavar="[QUEUE]", min=0, help="Only this queue.", show_default=False)
    ] = None,
    limit: Limit = None,
    redact: Annotated[bool, typer.Option("--redact", help="Leave bodies out.")] = False,
) -> None:
    """Show the messages of compacted topics of RocketMQ 5, as its broker returns them. Exit code 1 on damage."""
    settings = settings_of(context)
    output = settings.output()
    config = settings.load()

    from engine.files.disk import Disk
    from engine.inspect.store.compaction import LEFT_CODE, compaction_of
    from engine.inspect.store.survey import survey
    from engine.inspect.store.timer_log import DAMAGE

    disk = Disk()
    kept = compaction_of(disk, survey(disk, config))
    chosen = [one for one in kept.queues if topic in (None, one.queue.topic) and queue in (None, one.queue.queue_id)]
    if not chosen and topic is not None:
        known = ", ".join(f"{one.queue.topic} {one.queue.queue_id}" for one in kept.queues[:10])
        raise InvalidArgument(
            f"no such queue of a compacted topic: {f'there are {known}' if known else 'compaction/ has no queues'}"
        )
    damaged = kept.problem is not None
    if kept.problem is not None:
        output.warn(f"! {kept.problem}")
    for row in islice(_rows(disk, chosen, config.max_message_size), limit):
        damaged |= (row.kind == DAMAGE or row.reason is not None) and row.code != LEFT_CODE
        if output.json:
            output.line(queue_line(row, redact))
        else:
            output.raw(queue_text(row, redact))
    if not chosen:
        output.note("no compacted topics: a RocketMQ 5 broker keeps their messages in compaction/")
    if damaged:
        raise typer.Exit(FOUND)


def _rows(disk: Disk, queues: list[CompactedQueue], max_message_size: int) -> Iterator[CompactedRow]:
    from engine.inspect.store.compaction import compacted_rows

    for one in queues:
        yield from compacted_rows(disk, one, max_message_size=max_message_size)
