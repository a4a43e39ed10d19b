"""`rstore admin dlq`."""

from __future__ import annotations

from typing import Annotated

import typer

from engine.format.message_json import to_json
from engine.format.quantities import moment, parse_time
from rstore_cli._common import FOUND, settings_of
from rstore_cli.admin.asking import AGroup, ask, show
from rstore_cli.admin.changing import change
from rstore_cli.admin.nouns import Noun
from rstore_cli.messages import to_text

app = Noun("Dead letters: messages that a group has failed to consume too often.")
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only those that became dead letters at this time or later."),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Maximum messages, the oldest first.")]


@app.asks("list")
def list_(
    context: typer.Context,
    group: Annotated[str | None, typer.Argument(metavar="[GROUP]", help="Show the messages of this group.")] = None,
    since: Since = None,
    limit: Limit = None,
) -> None:
    """List groups with dead letters, or the dead letters of a group. Exit code 1 if nothing was found."""
    from engine.client.admin.dead_letters import dead_letter_queues, dead_letters

    output = settings_of(context).output()
    since_ms = None if since is None else parse_time(since, "--since")
    if group is None:
        rows = ask(context, lambda _, admin: dead_letter_queues(admin))
        columns = [
            ("group", lambda one: one.group),
            ("messages", lambda one: one.messages),
            ("last", lambda one: moment(one.last_ms)),
        ]
        show(output, rows, columns, "No group has dead letters.")
        if not any(one.messages for one in rows):
            raise typer.Exit(FOUND)
        return
    letters = ask(
        context,
        lambda client, admin: dead_letters(client, admin, group, since_ms=since_ms, most=limit),
    )
    for one in letters:
        if output.json:
            output.line(to_json(one.stored, decompress=True))
        else:
            for line in to_text(one.stored, decompress=True):
                output.raw(line)
    if not letters:
        output.note("No such dead letters.")
        raise typer.Exit(FOUND)


@app.changes()
def resend(
    context: typer.Context,
    group: AGroup,
    since: Since = None,
    limit: Limit = None,
    ids: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="This message alone (repeatable).")
    ] = None,
) -> None:
    """Give dead letters to their group once more, and to no other. They stay dead letters, too."""
    from engine.client.admin.dead_letters import plan_resend

    since_ms = None if since is None else parse_time(since, "--since")
    change(
        context,
        lambda client, admin: plan_resend(client, admin, group, since_ms=since_ms, most=limit, ids=tuple(ids or ())),
    )
