"""`rstore admin broker`."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from engine.client.admin.rows import to_row
from rstore_cli._common import settings_of
from rstore_cli.admin.asking import OfBroker, OfCluster, OnCluster, ask
from rstore_cli.admin.changing import change
from rstore_cli.admin.nouns import Noun
from rstore_cli.render import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    from engine.client.admin.brokers import BrokerValues
    from rstore_cli.render import Output

    class Told(Protocol):
        """What a broker or name server says."""

        @property
        def address(self) -> str: ...


app = Noun("Brokers: state, settings, cleaning.")
Key = Annotated[str | None, typer.Option("--key", "-k", metavar="TEXT", help="Only names that contain this text.")]


class What(enum.Enum):
    """What is cleaned."""

    QUEUES = "queues"
    TOPICS = "topics"
    LOG = "log"


@app.asks()
def status(
    context: typer.Context,
    cluster: OfCluster = None,
    broker: OfBroker = None,
    key: Key = None,
) -> None:
    """Show what masters say of their state, by Apache's names."""
    from engine.client.admin.brokers import broker_status

    _show_values(context, ask(context, lambda _, admin: broker_status(admin, cluster, broker)), key)


@app.asks()
def config(
    context: typer.Context,
    cluster: OfCluster = None,
    broker: OfBroker = None,
    key: Key = None,
) -> None:
    """Show the settings of running brokers."""
    from engine.client.admin.brokers import broker_settings

    _show_values(context, ask(context, lambda _, admin: broker_settings(admin, cluster, broker)), key)


@app.changes("set")
def set_(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="A setting, such as fileReservedTime.")],
    value: Annotated[str, typer.Argument(metavar="VALUE")],
    cluster: OnCluster = None,
    broker: OfBroker = None,
) -> None:
    """Change a setting of running masters; they keep it in their file."""
    from engine.client.admin.brokers import plan_setting

    change(context, lambda _, admin: plan_setting(admin, key, value, cluster, broker))


@app.changes()
def clean(
    context: typer.Context,
    what: Annotated[What, typer.Argument(metavar="WHAT", help="queues, topics or log.")],
    cluster: OnCluster = None,
    broker: OfBroker = None,
) -> None:
    """Have masters delete now: queue files of expired messages, queues of unknown topics, or expired segments."""
    from engine.client.admin.brokers import Cleaning, plan_cleaning

    change(context, lambda _, admin: plan_cleaning(admin, Cleaning[what.name], cluster, broker))


def _show_values(context: typer.Context, rows: Sequence[BrokerValues], key: str | None) -> None:
    values = [(f"{one.broker} ({one.address})", one, one.values) for one in rows]
    show_values(settings_of(context).output(), values, key)


def show_values(output: Output, rows: Sequence[tuple[str, Told, Mapping[str, str]]], key: str | None) -> None:
    """Names and values that each of several says. `rows`: heading, who, values. `key`: a part of the names."""
    for number, (head, one, values) in enumerate(rows):
        chosen = {name: value for name, value in values.items() if (key or "").lower() in name.lower()}
        if output.json:
            held = "values" if hasattr(one, "values") else "settings"
            output.line({**to_row(one), held: chosen})
            continue
        if number:
            output.text()
        output.text(printable(head))
        output.facts([(f"  {printable(name)}", printable(value)) for name, value in chosen.items()])
