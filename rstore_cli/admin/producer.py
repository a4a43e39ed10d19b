"""`rstore admin producer`."""

from __future__ import annotations

import typer

from engine.format.quantities import moment
from rstore_cli._common import settings_of
from rstore_cli.admin.asking import AGroup, ATopic, OfBroker, OfCluster, ask, show
from rstore_cli.admin.client_rows import CLIENTS
from rstore_cli.admin.nouns import Noun

app = Noun("Producers that are connected.")


@app.asks()
def connections(context: typer.Context, group: AGroup, topic: ATopic) -> None:
    """Show the producers of a group that send to a topic. Exit code 1 if nothing was found."""
    from engine.client.admin.members import producers_of_group

    rows = ask(context, lambda _, admin: producers_of_group(admin, group, topic))
    show(settings_of(context).output(), rows, CLIENTS, "")


@app.asks("list")
def list_(
    context: typer.Context,
    cluster: OfCluster = None,
    broker: OfBroker = None,
) -> None:
    """List all producers that brokers know."""
    from engine.client.admin.members import list_producers

    rows = ask(context, lambda _, admin: list_producers(admin, cluster, broker))
    columns = [("group", lambda one: one.group), *CLIENTS, ("last heard of", lambda one: moment(one.last_ms))]
    show(settings_of(context).output(), rows, columns, "No producer is connected.")
