"""What the commands of `rstore admin` share: their options, the question to the cluster, tables and JSON of answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from engine.client.admin.rows import to_row
from rstore_cli.cluster import client_of
from rstore_cli.render import printable

if TYPE_CHECKING:
    from engine.client.admin.session import AdminSession
    from engine.client.client import ClientConfig, ClusterClient
    from rstore_cli.render import Output

Answer = TypeVar("Answer")
Work = Callable[["ClusterClient", "AdminSession"], Coroutine[None, None, Answer]]

OfCluster = Annotated[
    str | None, typer.Option("--cluster", metavar="NAME", help="The brokers of this cluster (default: of all).")
]
OfBroker = Annotated[
    str | None, typer.Option("--broker", metavar="NAME", help="This broker alone: its name, or HOST:PORT.")
]
OnCluster = Annotated[
    str | None, typer.Option("--cluster", metavar="NAME", help="On this cluster (default: the only one).")
]
ATopic = Annotated[str, typer.Argument(metavar="TOPIC")]
AGroup = Annotated[str, typer.Argument(metavar="GROUP")]


def ask(context: typer.Context, work: Work[Answer]) -> Answer:
    """What the cluster answers, or the daemon of --store. `context`: of a command of a Noun.

    Raises:
        InvalidArgument: no name server, or no such name. NotFound, StorageError, PeerLost, RefusedByBroker, FormatError
    """
    return asyncio.run(connected(config_of(context), work))


def config_of(context: typer.Context) -> ClientConfig:
    """How to reach the cluster. Raises as `client_of`."""
    return client_of(context, context.params["namesrv"], "", context.params["tls_ca"])


async def connected(config: ClientConfig, work: Work[Answer]) -> Answer:
    """Do it with a client."""
    from engine.client.admin.session import AdminSession
    from engine.client.client import ClusterClient

    async with ClusterClient(config) as client:
        return await work(client, AdminSession(client))


Column = tuple[str, Callable[[Any], str | int | float]]


def show(output: Output, rows: Sequence[Any], columns: Sequence[Column], nothing: str) -> None:
    """Rows as a table, or as JSON lines. Columns whose values are numbers stand to the right."""
    if output.json:
        for row in rows:
            output.line(to_row(row))
        return
    if not rows:
        output.text(nothing)
        return
    values = [[value(row) for _, value in columns] for row in rows]
    numbers = [at for at in range(len(columns)) if all(isinstance(one[at], int | float) for one in values)]
    cells = [[_cell(one) for one in row] for row in values]
    output.table([head for head, _ in columns], cells, numbers=numbers)


def _cell(value: str | int | float) -> str:
    if isinstance(value, str):
        return printable(value)
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
