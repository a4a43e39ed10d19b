"""`rstore admin consumer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from engine.client.admin.rows import to_row
from engine.format.quantities import counted, moment
from rstore_cli._common import settings_of
from rstore_cli.admin.asking import AGroup, OfBroker, OfCluster, ask, show
from rstore_cli.admin.client_rows import CLIENTS
from rstore_cli.admin.nouns import Noun
from rstore_cli.render import printable

if TYPE_CHECKING:
    from engine.client.admin.members import ConsumerState
    from rstore_cli.admin.asking import Column
    from rstore_cli.render import Output

app = Noun("Consumers that are connected, and how far their groups have come.")
_LAG: list[Column] = [
    ("topic", lambda one: one.topic),
    ("broker", lambda one: one.broker),
    ("queue", lambda one: one.queue_id),
    ("broker offset", lambda one: one.broker_offset),
    ("consumer offset", lambda one: one.consumer_offset),
    ("lag", lambda one: one.lag),
    ("last consumed", lambda one: moment(one.last_ms)),
]


@app.asks()
def progress(
    context: typer.Context,
    group: AGroup,
    topic: Annotated[str | None, typer.Option("--topic", metavar="NAME", help="Only this topic.")] = None,
    clients: Annotated[bool, typer.Option("--clients", help="Show which consumer has which queue.")] = False,
) -> None:
    """Show the consumer offset of a group in each queue, and its lag."""
    from engine.client.admin.groups import group_progress

    answer = ask(context, lambda _, admin: group_progress(admin, group, topic, clients=clients))
    output = settings_of(context).output()
    if output.json:
        output.document(to_row(answer))
        return
    who = [("client", lambda one: one.client or "none")] if clients else []
    show(output, answer.queues, [*_LAG, *who], "The group has committed nothing.")
    if answer.queues:
        output.text(f"Lag: {counted(answer.lag, 'message')}; rate: {answer.rate:.2f} consumed a second.")


@app.asks()
def lag(
    context: typer.Context,
    cluster: OfCluster = None,
    broker: OfBroker = None,
    least: Annotated[int, typer.Option("--least", min=0, metavar="N", help="Only queues with this lag or more.")] = 0,
) -> None:
    """Show how far all groups have come on brokers."""
    from engine.client.admin.groups import lag_at

    rows = ask(context, lambda _, admin: lag_at(admin, cluster, broker))
    chosen = [one for one in rows if one.lag >= least]
    output = settings_of(context).output()
    nothing = f"No queue has a lag of {least:,} or more." if rows else "No group has committed an offset."
    show(output, chosen, [("group", lambda one: one.group), *_LAG], nothing)
    if chosen and not output.json:
        output.text(f"Lag: {counted(sum(one.lag for one in chosen), 'message')}.")


@app.asks()
def connections(context: typer.Context, group: AGroup) -> None:
    """Show the connected consumers of a group, and what they subscribe to. Exit code 1 if nothing was found."""
    from engine.client.admin.members import online_consumers

    answer = ask(context, lambda _, admin: online_consumers(admin, group))
    output = settings_of(context).output()
    if output.json:
        output.document(to_row(answer))
        return
    show(output, answer.clients, CLIENTS, "")
    output.facts(
        [
            ("consumes", answer.consumes),
            ("model", answer.model),
            ("starts at", answer.start),
            *((f"topic {printable(name)}", printable(text)) for name, text in (answer.subscriptions or {}).items()),
        ]
    )


@app.asks()
def status(
    context: typer.Context,
    group: AGroup,
    client: Annotated[str | None, typer.Option("--client", metavar="ID", help="Only this consumer.")] = None,
    stack: Annotated[bool, typer.Option("--stack", help="Show the stacks of its threads.")] = False,
) -> None:
    """Show what the consumers of a group say of themselves: queues, rates, settings."""
    from engine.client.admin.members import consumer_states

    rows = ask(context, lambda _, admin: consumer_states(admin, group, client, stack=stack))
    output = settings_of(context).output()
    for one in rows:
        if output.json:
            output.line(to_row(one))
        else:
            _show_state(output, one)


def _show_state(output: Output, state: ConsumerState) -> None:
    output.text(f"Consumer {printable(state.client_id)} of group {printable(state.group)}")
    output.facts([(f"  {printable(name)}", printable(value)) for name, value in state.properties.items()])
    columns = [
        ("topic", lambda one: one.topic),
        ("broker", lambda one: one.broker),
        ("queue", lambda one: one.queue_id),
        ("committed", lambda one: one.commit_offset),
        ("in memory", lambda one: one.cached),
        ("last pull", lambda one: moment(one.last_pull_ms)),
        ("last consumed", lambda one: moment(one.last_consume_ms)),
    ]
    show(output, state.queues, columns, "It has no queues.")
    rates = [(topic, one) for topic, one in state.rates.items()]
    heads = ("pullRT", "pullTPS", "consumeRT", "consumeOKTPS", "consumeFailedTPS", "consumeFailedMsgs")
    if rates:
        cells = [[printable(topic), *(f"{one.get(name, 0):.2f}" for name in heads)] for topic, one in rates]
        output.table(["topic", *heads], cells, numbers=range(1, 7))
    if state.stack is not None:
        for line in state.stack.splitlines():
            output.raw(printable(line.expandtabs(4)))


@app.asks()
def give(
    context: typer.Context,
    group: AGroup,
    message: Annotated[str, typer.Argument(metavar="ID", help="The id of a message.")],
    client: Annotated[str, typer.Option("--client", metavar="ID", help="The consumer that gets it.")],
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="NAME", help="The message's topic, for the id of a producer.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
) -> None:
    """Give a message to a connected consumer now; no offset is changed. Exit code 1 if it fails to consume it."""
    from engine.client.admin.messages import give_to_consumer, message_by_id
    from rstore_cli._common import FOUND
    from rstore_cli.change import agreed

    settings = settings_of(context)
    output = settings.output()
    stored = ask(context, lambda _, admin: message_by_id(admin, message, topic))
    if not output.json:
        output.text(f"Plan: consumer {printable(client)} of group {printable(group)} consumes {stored.msg_id} now.")
    if not yes and not agreed(output, "admin consumer give"):
        output.warn("Nothing was changed.")
        raise typer.Exit(FOUND)
    answer = ask(context, lambda _, admin: give_to_consumer(admin, stored, group, client))
    if output.json:
        output.document(to_row(answer))
    else:
        output.text(f"{printable(answer.result)} in {answer.spent_ms} ms {printable(answer.remark)}".rstrip())
    if answer.result != "CR_SUCCESS":
        raise typer.Exit(FOUND)
