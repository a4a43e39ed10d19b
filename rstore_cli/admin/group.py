"""`rstore admin group`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rstore_cli._common import settings_of
from rstore_cli.admin.asking import AGroup, OfBroker, OnCluster, ask, show
from rstore_cli.admin.changing import change
from rstore_cli.admin.nouns import Noun
from rstore_cli.render import printable

app = Noun("Consumer groups: configuration. How far they have come: admin consumer progress.")


def _switch(name: str, what: str) -> Any:
    return typer.Option(f"--{name}/--no-{name}", help=what)


@app.asks("list")
def list_(context: typer.Context) -> None:
    """List groups: connected consumers, version, kind, messages a second, lag."""
    from engine.client.admin.groups import list_groups

    rows = ask(context, lambda _, admin: list_groups(admin))
    columns = [
        ("group", lambda one: one.group),
        ("clients", lambda one: one.clients),
        ("version", lambda one: one.version or "offline"),
        ("kind", lambda one: one.consumes),
        ("model", lambda one: one.model),
        ("messages/s", lambda one: one.rate),
        ("lag", lambda one: one.lag),
    ]
    show(settings_of(context).output(), rows, columns, "No groups.")


@app.asks()
def config(context: typer.Context, group: AGroup) -> None:
    """Show the configuration of a group, broker by broker."""
    from engine.client.admin.groups import group_config

    rows = ask(context, lambda _, admin: group_config(admin, group))
    output = settings_of(context).output()
    if output.json:
        show(output, rows, [], "")
        return
    if not rows:
        output.text("No broker has a configuration of the group.")
    for one in rows:
        output.text(f"{printable(one.broker)} ({printable(one.address)})")
        output.facts([(f"  {printable(name)}", printable(_shown(value))) for name, value in sorted(one.values.items())])


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@app.changes()
def create(
    context: typer.Context,
    group: AGroup,
    cluster: OnCluster = None,
    broker: OfBroker = None,
    consume: Annotated[bool | None, _switch("consume", "May consume (default: yes).")] = None,
    broadcast: Annotated[bool | None, _switch("broadcast", "May consume by broadcasting (default: no).")] = None,
    from_min: Annotated[bool | None, _switch("from-min", "May start at the minimum offset (default: no).")] = None,
    retry_queues: Annotated[
        int | None, typer.Option("--retry-queues", min=0, metavar="N", help="Queues of the retry topic (default: 1).")
    ] = None,
    retries: Annotated[
        int | None, typer.Option("--retries", metavar="N", help="Failures before a dead letter (default: 16).")
    ] = None,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", min=0, metavar="N", help="Which broker id serves it (default: 0).")
    ] = None,
    slow_broker_id: Annotated[
        int | None,
        typer.Option("--slow-broker-id", min=0, metavar="N", help="Which one serves old messages (default: 1)."),
    ] = None,
    notify: Annotated[bool | None, _switch("notify", "Consumers learn of new ones at once (default: yes).")] = None,
) -> None:
    """Make a group, or change it: what is not named stays as it is."""
    from engine.client.admin.groups import plan_group

    values = {
        "consumeEnable": consume,
        "consumeBroadcastEnable": broadcast,
        "consumeFromMinEnable": from_min,
        "retryQueueNums": retry_queues,
        "retryMaxTimes": retries,
        "brokerId": broker_id,
        "whichBrokerWhenConsumeSlowly": slow_broker_id,
        "notifyConsumerIdsChangedEnable": notify,
    }
    wanted = {name: value for name, value in values.items() if value is not None}
    change(context, lambda _, admin: plan_group(admin, group, wanted, cluster, broker))


@app.changes()
def delete(
    context: typer.Context,
    group: AGroup,
    cluster: OnCluster = None,
    broker: OfBroker = None,
    offsets: Annotated[bool, typer.Option("--offsets", help="Delete its consumer offsets, too.")] = False,
) -> None:
    """Delete a group; without --broker its retry topic and its dead letters, too."""
    from engine.client.admin.groups import plan_delete_group

    change(context, lambda _, admin: plan_delete_group(admin, group, cluster, broker, offsets=offsets))
