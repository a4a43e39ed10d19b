"""`rstore admin acl`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine.errors import InvalidArgument, from_os_error
from engine.format.quantities import moment
from rstore_cli._common import settings_of
from rstore_cli.admin.asking import OfBroker, OfCluster, OnCluster, ask, show
from rstore_cli.admin.changing import change
from rstore_cli.admin.nouns import Noun

app = Noun("Accounts of brokers with an ACL.")
Account = Annotated[str, typer.Argument(metavar="ACCOUNT", help="The access key.")]
_SECRET_MAX = 4096


@app.asks()
def version(
    context: typer.Context,
    cluster: OfCluster = None,
    broker: OfBroker = None,
) -> None:
    """Show the ACL files of brokers, and when each was changed last."""
    from engine.client.admin.accounts import acl_versions

    rows = ask(context, lambda _, admin: acl_versions(admin, cluster, broker))
    columns = [
        ("cluster", lambda one: one.cluster),
        ("broker", lambda one: one.broker),
        ("address", lambda one: one.address),
        ("file", lambda one: one.file),
        ("changes", lambda one: one.changes),
        ("last change", lambda one: moment(one.changed_ms)),
    ]
    show(settings_of(context).output(), rows, columns, "No ACL files.")


@app.changes("set")
def set_(
    context: typer.Context,
    account: Account,
    cluster: OnCluster = None,
    broker: OfBroker = None,
    secret_file: Annotated[
        Path | None, typer.Option("--secret-file", metavar="FILE", help="File with the secret key, in its first line.")
    ] = None,
    admin: Annotated[bool, typer.Option("--admin", help="An administrator.")] = False,
    white_address: Annotated[
        str | None, typer.Option("--white-address", metavar="PATTERN", help="Where no signature is needed.")
    ] = None,
    default_topic: Annotated[
        str | None, typer.Option("--default-topic", metavar="RIGHT", help="For other topics: DENY, PUB, SUB, PUB|SUB.")
    ] = None,
    default_group: Annotated[
        str | None, typer.Option("--default-group", metavar="RIGHT", help="For other groups: DENY, PUB, SUB, PUB|SUB.")
    ] = None,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME=RIGHT", help="Right on a topic (repeatable).")
    ] = None,
    groups: Annotated[
        list[str] | None, typer.Option("--group", metavar="NAME=RIGHT", help="Right on a group (repeatable).")
    ] = None,
) -> None:
    """Make an account, or change it: rights that are not named stay, but whether it is an administrator."""
    from engine.client.admin.accounts import AccountWanted, plan_account

    secret = None if secret_file is None else _first_line(secret_file)
    wanted = AccountWanted(
        account, secret, admin, white_address, default_topic, default_group, tuple(topics or ()), tuple(groups or ())
    )
    change(context, lambda _, session: plan_account(session, wanted, cluster, broker))


def _first_line(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as lines:
            line = lines.readline(_SECRET_MAX).rstrip("\r\n")
    except OSError as error:
        raise from_os_error(error, "reading a secret key", path) from None
    except UnicodeDecodeError:
        raise InvalidArgument("the secret key is no text", path=path) from None
    if not line:
        raise InvalidArgument("the first line is empty", path=path)
    return line


@app.changes()
def delete(
    context: typer.Context,
    account: Account,
    cluster: OnCluster = None,
    broker: OfBroker = None,
) -> None:
    """Delete an account."""
    from engine.client.admin.accounts import plan_delete_account

    change(context, lambda _, admin: plan_delete_account(admin, account, cluster, broker))


@app.changes()
def white(
    context: typer.Context,
    addresses: Annotated[str, typer.Argument(metavar="PATTERNS", help="Addresses, separated by commas.")],
    cluster: OnCluster = None,
    broker: OfBroker = None,
    file: Annotated[
        str | None,
        typer.Option("--acl-file", metavar="PATH", help="Which ACL file of the broker (default: its first)."),
    ] = None,
) -> None:
    """Set the addresses from which no account is needed."""
    from engine.client.admin.accounts import plan_white_addresses

    change(context, lambda _, admin: plan_white_addresses(admin, addresses, file, cluster, broker))
