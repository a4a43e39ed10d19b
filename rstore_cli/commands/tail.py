"""`rstore tail`: messages as they come, of a running cluster or of a store that a broker writes."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from rstore_cli._common import settings_of
from rstore_cli.cluster import NameServers, Namespace, TlsCa, client_config, demand_topic, is_of_cluster
from rstore_cli.message_rows import show_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.client.client import ClientConfig
    from engine.config import StoreConfig
    from rstore_cli.render import Output

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_LOOK_S = 0.2


@app.command()
def tail(
    context: typer.Context,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Topics (default: all but those of brokers).")
    ] = None,
    namesrv: NameServers = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, metavar="N", help="Maximum messages.")] = None,
    namespace: Namespace = "",
    tls_ca: TlsCa = None,
) -> None:
    """Show new messages as they come, until Ctrl-C.

    With --namesrv those of a running cluster, Apache's or rstore's; else those that a broker writes into the store.
    Reads only: no offset is committed. The account for brokers with an ACL is taken from RSTORE_ACCESS_KEY and
    RSTORE_SECRET_KEY.
    """
    settings = settings_of(context)
    output = settings.output()
    named = tuple(topics or ())
    if is_of_cluster(context):
        asyncio.run(_of_cluster(client_config(namesrv, namespace, tls_ca), named, output, count))
    else:
        _of_store(settings.load(), named, output, count)


async def _of_cluster(config: ClientConfig, topics: Sequence[str], output: Output, count: int | None) -> None:
    from engine.client.client import ClusterClient
    from engine.client.tail import ClusterTail

    shown = 0
    async with ClusterClient(config) as client:
        for topic in topics:
            await demand_topic(client, topic)
        async with aclosing(ClusterTail(client, topics).messages()) as messages:
            async for message in messages:
                show_plain(output, message.stored)
                sys.stdout.flush()
                shown += 1
                if shown == count:
                    return


def _of_store(config: StoreConfig, topics: Sequence[str], output: Output, count: int | None) -> None:
    from engine.inspect.next_step import command_line
    from engine.tail_log import FollowedLog

    shown = passed = 0
    with FollowedLog(config, topics) as log:
        output.note("note: messages that are stored from now on are shown")
        while True:
            for message in log.next_messages():
                show_plain(output, message)
                sys.stdout.flush()
                shown += 1
                if shown == count:
                    return
            for start, end in log.passed[passed:]:
                check = command_line(config, "check")
                output.warn(f"! damage from {start} to {end} was passed over. Next: {check}")
            passed = len(log.passed)
            time.sleep(_LOOK_S)
