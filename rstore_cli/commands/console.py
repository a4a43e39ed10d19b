"""`rstore console`: a store, a cluster, or both, in a browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import settings_of
from rstore_cli.cluster import NameServers, TlsCa

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def console(
    context: typer.Context,
    namesrv: NameServers = None,
    listen: Annotated[str, typer.Option("--listen", metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, metavar="PORT", help="Port of the console (0: a free one).")
    ] = 18080,
    console_name: Annotated[
        str | None,
        typer.Option(
            "--console-name", metavar="LIST", help="Host names by which browsers reach it, HOST or HOST:PORT."
        ),
    ] = None,
    console_write: Annotated[
        bool, typer.Option("--console-write", help="Allow changes: each is planned, shown and confirmed first.")
    ] = False,
    redact: Annotated[bool, typer.Option("--redact", help="Show no bodies and no values of properties.")] = False,
    acl: Annotated[
        Path | None,
        typer.Option("--acl", metavar="FILE", help="ACL file (plain_acl.yml) whose accounts may log in."),
    ] = None,
    operations_log: Annotated[
        Path | None,
        typer.Option(
            "--operations-log", metavar="FILE", help="Where changes are noted (default: in the user's state directory)."
        ),
    ] = None,
    tls_ca: TlsCa = None,
) -> None:
    """Show a store (--store), a cluster (--namesrv) or both in a browser, until Ctrl-C.

    A store is only read: a broker may be running on it, or none. The console prints the address to log in with; each
    opens one session. Nothing can be changed without --console-write.
    """
    settings = settings_of(context)
    output = settings.output()

    from engine.console.beside import FOLLOWS_STDIN, NICE
    from engine.console.options import ConsoleOptions
    from engine.console.serve import serve
    from engine.files.cache import state_directory
    from engine.format.hosts import is_loopback
    from rstore_cli.cluster import client_config

    has_store = settings.store is not None or settings.config is not None
    if not has_store and not namesrv:
        raise InvalidArgument(
            "a store or a cluster is required", hint="rstore console --store DIR, or --namesrv HOST:PORT, or both"
        )
    cluster = client_config(namesrv, "", tls_ca) if namesrv else None
    options = ConsoleOptions(
        store=settings.load() if has_store else None,
        name_servers=() if cluster is None else cluster.name_servers,
        host=listen,
        port=port,
        names=tuple(filter(None, (one.strip() for one in (console_name or "").replace(";", ",").split(",")))),
        write=console_write,
        redact=redact,
        acl=None if acl is None else acl.absolute(),
        account=None if cluster is None else cluster.account,
        tls=None if cluster is None else cluster.tls,
        operations=operations_log.absolute() if operations_log is not None else state_directory() / "operations.jsonl",
        conf=settings.config,
    )

    def tell_log_in(address: str) -> None:
        if output.json:
            output.line({"logIn": address})
        else:
            output.text(f"Log in at {address}")
        sys.stdout.flush()

    def ready(address: str) -> None:
        if output.json:
            output.line({"console": address})
        else:
            output.text(f"The console listens on {address}.")
        sys.stdout.flush()

    if not is_loopback(listen):
        output.warn(f"listening on {listen} without TLS: log-ins can be read on the way; put a proxy with TLS in front")
    settings.on_interrupt = "the console has ended; nothing was changed"
    is_beside = FOLLOWS_STDIN in os.environ
    if is_beside:
        os.nice(NICE)
    serve(options, tell_log_in, ready, follows_stdin=is_beside)
