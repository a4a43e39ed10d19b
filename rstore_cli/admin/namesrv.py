"""`rstore admin namesrv`."""

from __future__ import annotations

from typing import Annotated

import typer

from rstore_cli._common import settings_of
from rstore_cli.admin.asking import ask, show
from rstore_cli.admin.broker import Key, show_values
from rstore_cli.admin.changing import change
from rstore_cli.admin.nouns import Noun

app = Noun("Name servers: settings, key-value entries, write permission of brokers.")
Space = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Such as ORDER_TOPIC_CONFIG.")]
Name = Annotated[str, typer.Argument(metavar="BROKER", help="The name of a broker.")]


@app.asks()
def config(context: typer.Context, key: Key = None) -> None:
    """Show the settings of each name server."""
    from engine.client.admin.name_servers import name_server_configs

    rows = ask(context, lambda _, admin: name_server_configs(admin))
    show_values(settings_of(context).output(), [(one.address, one, one.settings) for one in rows], key)


@app.changes("set")
def set_(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="A setting, such as orderMessageEnable.")],
    value: Annotated[str, typer.Argument(metavar="VALUE")],
) -> None:
    """Change a setting of all name servers."""
    from engine.client.admin.name_servers import plan_name_server_setting

    change(context, lambda _, admin: plan_name_server_setting(admin, key, value))


@app.asks("kv-list")
def kv_list(context: typer.Context, space: Space) -> None:
    """List the key-value entries of a namespace at each name server."""
    from engine.client.admin.name_servers import entries_of

    rows = ask(context, lambda _, admin: entries_of(admin, space))
    columns = [
        ("name server", lambda one: one.address),
        ("key", lambda one: one.key),
        ("value", lambda one: one.value),
    ]
    show(settings_of(context).output(), rows, columns, "No entries.")


@app.changes("kv-set")
def kv_set(
    context: typer.Context,
    space: Space,
    key: Annotated[str, typer.Argument(metavar="KEY")],
    value: Annotated[str, typer.Argument(metavar="VALUE")],
) -> None:
    """Set a key-value entry at all name servers."""
    from engine.client.admin.name_servers import plan_entry

    change(context, lambda _, admin: plan_entry(admin, space, key, value))


@app.changes("kv-delete")
def kv_delete(
    context: typer.Context,
    space: Space,
    key: Annotated[str, typer.Argument(metavar="KEY")],
) -> None:
    """Delete a key-value entry at all name servers."""
    from engine.client.admin.name_servers import plan_entry

    change(context, lambda _, admin: plan_entry(admin, space, key, None))


@app.changes("wipe-write")
def wipe_write(
    context: typer.Context,
    broker: Name,
) -> None:
    """Take the write permission from a broker in all routes: producers leave it, consumers read it to its end."""
    from engine.client.admin.name_servers import plan_write_permission

    change(context, lambda _, admin: plan_write_permission(admin, broker, may_write=False))


@app.changes("add-write")
def add_write(
    context: typer.Context,
    broker: Name,
) -> None:
    """Give the write permission back to a broker in all routes."""
    from engine.client.admin.name_servers import plan_write_permission

    change(context, lambda _, admin: plan_write_permission(admin, broker, may_write=True))
