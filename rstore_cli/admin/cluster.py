"""`rstore admin cluster`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from engine.format.quantities import moment
from rstore_cli._common import settings_of
from rstore_cli.admin.asking import OfBroker, OfCluster, ask, show
from rstore_cli.admin.nouns import Noun

if TYPE_CHECKING:
    from engine.client.admin.brokers import BrokerLine
    from rstore_cli.admin.asking import Column

app = Noun("Clusters and their brokers.")


@app.asks("list")
def list_(
    context: typer.Context,
    cluster: OfCluster = None,
    broker: OfBroker = None,
    more: Annotated[bool, typer.Option("--more", help="Messages of yesterday and today, not rates.")] = False,
) -> None:
    """List clusters and brokers: address, version, rates, oldest message, disk usage; or why one does not answer."""
    from engine.client.admin.brokers import broker_lines

    rows = ask(context, lambda _, admin: broker_lines(admin, cluster, broker))
    places: list[Column] = [
        ("cluster", lambda one: one.cluster),
        ("broker", lambda one: one.broker),
        ("id", lambda one: one.broker_id),
        ("address", lambda one: one.address),
        ("version", lambda one: one.version if one.problem is None else one.problem),
    ]
    show(settings_of(context).output(), rows, [*places, *(_COUNTS if more else _RATES)], "No broker is registered.")


def _oldest(line: BrokerLine) -> str:
    return moment(line.oldest_ms)


_RATES: list[Column] = [
    ("in/s", lambda one: float(one.in_rate)),
    ("out/s", lambda one: float(one.out_rate)),
    ("page cache ms", lambda one: one.waits_ms),
    ("oldest message", _oldest),
    ("disk", lambda one: f"{one.disk_used:.1%}"),
]
_COUNTS: list[Column] = [
    ("in yesterday", lambda one: one.in_yesterday),
    ("out yesterday", lambda one: one.out_yesterday),
    ("in today", lambda one: one.in_today),
    ("out today", lambda one: one.out_today),
]
