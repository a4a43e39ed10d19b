"""`rstore admin offset`."""

from __future__ import annotations

from typing import Annotated

import typer

from rstore_cli._common import parse_time
from rstore_cli.admin.asking import AGroup, ATopic
from rstore_cli.admin.changing import change
from rstore_cli.admin.nouns import Noun

app = Noun("Consumer offsets of groups.")
_WORDS = {"first": 0, "end": -1}


@app.changes()
def reset(
    context: typer.Context,
    group: AGroup,
    topic: ATopic,
    to: Annotated[
        str,
        typer.Option("--to", metavar="TIME", help="Store time: ISO 8601, epoch ms, '2 hours ago'; or first, or end."),
    ],
    queue: Annotated[
        int | None, typer.Option("--queue", min=0, metavar="N", help="This queue alone, of a group without consumers.")
    ] = None,
) -> None:
    """Set the consumer offsets of a group in a topic to a time, the first messages or the end.

    Brokers tell the consumers that are connected, and these continue there.
    """
    from engine.client.admin.offsets import plan_reset

    time_ms = _WORDS[to] if to in _WORDS else parse_time(to, "--to")
    change(context, lambda client, admin: plan_reset(client, admin, group, topic, time_ms, queue))


@app.changes()
def skip(
    context: typer.Context,
    group: AGroup,
    topic: ATopic,
) -> None:
    """Set the consumer offsets of a group in a topic to the end: what is unread is not read."""
    from engine.client.admin.offsets import END_MS, plan_reset

    change(context, lambda client, admin: plan_reset(client, admin, group, topic, END_MS))


@app.changes()
def clone(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FROM", help="The group that has the offsets.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The group that gets them.")],
    topic: ATopic,
) -> None:
    """Give a group the consumer offsets of another one in a topic."""
    from engine.client.admin.offsets import plan_clone

    change(context, lambda _, admin: plan_clone(admin, source, target, topic))
