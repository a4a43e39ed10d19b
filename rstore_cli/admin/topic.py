"""`rstore admin topic`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from engine.client.admin.rows import to_row
from engine.errors import InvalidArgument
from engine.format.quantities import counted, moment
from rstore_cli._common import settings_of
from rstore_cli.admin.asking import ATopic, OfBroker, OfCluster, OnCluster, ask, show
from rstore_cli.admin.changing import change
from rstore_cli.admin.nouns import Noun
from rstore_cli.render import printable

app = Noun("Topics of a cluster.")
Queues = Annotated[
    int | None, typer.Option("--queues", min=1, metavar="N", help="Queues to read and write, of each broker.")
]


@app.asks("list")
def list_(
    context: typer.Context,
    cluster: OfCluster = None,
    groups: Annotated[bool, typer.Option("--groups", help="Show clusters, and the groups that consume each.")] = False,
) -> None:
    """List topics, those of RocketMQ itself among them."""
    from engine.client.admin.topics import list_topics

    rows = ask(context, lambda _, admin: list_topics(admin, cluster, groups=groups))
    more = [("cluster", lambda one: one.cluster or ""), ("groups", lambda one: ", ".join(one.groups or ()))]
    columns = [("topic", lambda one: one.topic), *(more if groups else [])]
    show(settings_of(context).output(), rows, columns, "No topics.")


@app.asks()
def status(context: typer.Context, topic: ATopic) -> None:
    """Show the queues of a topic: minimum and maximum offset, time of the last message."""
    from engine.client.admin.topics import topic_status

    rows = ask(context, lambda _, admin: topic_status(admin, topic))
    columns = [
        ("broker", lambda one: one.broker),
        ("queue", lambda one: one.queue_id),
        ("min offset", lambda one: one.min_offset),
        ("max offset", lambda one: one.max_offset),
        ("last message", lambda one: moment(one.last_ms)),
    ]
    output = settings_of(context).output()
    show(output, rows, columns, "The topic has no queues.")
    if not output.json:
        output.text(f"The queues hold {counted(sum(one.max_offset - one.min_offset for one in rows), 'message')}.")


@app.asks()
def route(context: typer.Context, topic: ATopic) -> None:
    """Show which brokers serve a topic, with queues and permission."""
    answer = ask(context, lambda _, admin: admin.demand_topic(topic))
    output = settings_of(context).output()
    if output.json:
        output.document(to_row(answer))
        return
    columns = [
        ("cluster", lambda one: answer.clusters.get(one.broker, "")),
        ("broker", lambda one: one.broker),
        ("read queues", lambda one: one.read_queues),
        ("write queues", lambda one: one.write_queues),
        ("perm", lambda one: one.perm),
        ("addresses", lambda one: _addresses(answer.brokers.get(one.broker, {}))),
    ]
    show(output, answer.queues, columns, "No broker serves the topic.")
    if answer.order:
        output.text(f"Its order: {printable(answer.order)}")


def _addresses(brokers: Mapping[int, str]) -> str:
    return ", ".join(f"{number}: {address}" for number, address in sorted(brokers.items()))


@app.asks()
def clusters(context: typer.Context, topic: ATopic) -> None:
    """List the clusters that serve a topic."""
    from engine.client.admin.topics import topic_clusters

    names = ask(context, lambda _, admin: topic_clusters(admin, topic))
    output = settings_of(context).output()
    for name in names:
        if output.json:
            output.line({"cluster": name})
        else:
            output.text(printable(name))


@app.asks()
def rates(
    context: typer.Context,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Only this topic.")] = None,
    active: Annotated[bool, typer.Option("--active", "-a", help="Only topics with messages of the last day.")] = False,
) -> None:
    """Show for topics and groups: messages a second, messages of the last day, lag."""
    from engine.client.admin.topics import topic_rates

    rows = ask(context, lambda _, admin: topic_rates(admin, topic))
    columns = [
        ("topic", lambda one: one.topic),
        ("group", lambda one: one.group or "no consumer"),
        ("lag", lambda one: one.lag or 0),
        ("in/s", lambda one: one.in_rate),
        ("out/s", lambda one: one.out_rate),
        ("in 24 h", lambda one: one.in_day),
        ("out 24 h", lambda one: one.out_day),
    ]
    chosen = [one for one in rows if not active or one.in_day or one.out_day]
    show(settings_of(context).output(), chosen, columns, "No topics.")


@app.asks()
def allocate(
    context: typer.Context,
    topic: ATopic,
    clients: Annotated[str, typer.Option("--clients", metavar="NAMES", help="Client ids, separated by commas.")],
) -> None:
    """Show which client would have which queue, by the strategy AVG (AllocateMessageQueueAveragely)."""
    from engine.client.allocate import Averagely

    names = sorted(filter(None, (part.strip() for part in clients.split(","))))
    answer = ask(context, lambda _, admin: admin.demand_topic(topic))
    queues = answer.read_queues(topic)
    output = settings_of(context).output()
    for name in names:
        held = Averagely().allocate(name, queues, names)
        if output.json:
            output.line({"clientId": name, "queues": [one._asdict() for one in held]})
        else:
            output.text(f"{printable(name)}: {', '.join(f'{one.broker}/{one.queue_id}' for one in held) or 'none'}")


# --- changes ---------------------------------------------------------------------------------------------------------


@app.changes()
def create(
    context: typer.Context,
    topic: ATopic,
    cluster: OnCluster = None,
    broker: OfBroker = None,
    queues: Queues = None,
    read_queues: Annotated[
        int | None, typer.Option("--read-queues", min=1, metavar="N", help="Queues to read (default: 8, or as now).")
    ] = None,
    write_queues: Annotated[
        int | None, typer.Option("--write-queues", min=1, metavar="N", help="Queues to write (default: 8, or as now).")
    ] = None,
    perm: Annotated[
        int | None, typer.Option("--perm", metavar="N", help="2: write, 4: read, 6: both (default: 6, or as now).")
    ] = None,
    order: Annotated[bool, typer.Option("--order", help="An ordered topic: the name servers keep its queues.")] = False,
) -> None:
    """Make a topic, or change it: what is not named stays as it is."""
    from engine.client.admin.topics import TopicWanted, plan_topic

    if queues is not None and (read_queues is not None or write_queues is not None):
        raise InvalidArgument("--queues excludes --read-queues and --write-queues")
    wanted = TopicWanted(queues or read_queues, queues or write_queues, perm, order or None)
    change(context, lambda _, admin: plan_topic(admin, topic, wanted, cluster, broker))


@app.changes()
def perm(
    context: typer.Context,
    topic: ATopic,
    permission: Annotated[int, typer.Argument(metavar="PERM", help="2: write, 4: read, 6: both.")],
    cluster: OnCluster = None,
    broker: OfBroker = None,
) -> None:
    """Change who may read and write a topic."""
    from engine.client.admin.topics import plan_perm

    change(context, lambda _, admin: plan_perm(admin, topic, permission, cluster, broker))


@app.changes()
def delete(
    context: typer.Context,
    topic: ATopic,
    cluster: OnCluster = None,
) -> None:
    """Delete a topic from the brokers of a cluster and from the name servers."""
    from engine.client.admin.topics import plan_delete_topic

    change(context, lambda _, admin: plan_delete_topic(admin, topic, cluster))


@app.changes()
def order(
    context: typer.Context,
    topic: ATopic,
    set_: Annotated[
        str | None, typer.Option("--set", metavar="ORDER", help="The queues: BROKER:QUEUES;BROKER:QUEUES.")
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete them.")] = False,
) -> None:
    """Show, set or delete the queues that name servers keep of an ordered topic."""
    from engine.client.admin.name_servers import ORDER_SPACE, entries_at, plan_entry

    if set_ is not None and delete:
        raise InvalidArgument("--set and --delete exclude each other")
    if set_ is not None or delete:
        change(context, lambda _, admin: plan_entry(admin, ORDER_SPACE, topic, set_))
        return
    rows = ask(context, lambda _, admin: entries_at(admin, ORDER_SPACE, topic))
    columns = [("name server", lambda one: one.address), ("order", lambda one: one.value)]
    show(settings_of(context).output(), rows, columns, "The topic has no order.")
