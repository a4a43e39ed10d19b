"""`rstore serve`: the same engine as a daemon that RocketMQ clients talk to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rstore_cli._common import settings_of

if TYPE_CHECKING:
    from engine.broker.serve import Listening

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def serve(
    context: typer.Context,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="ADDRESS", help="What is listened on (default: 127.0.0.1).")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, metavar="PORT", help="The broker's (default: 10911).")
    ] = None,
    names_port: Annotated[
        int | None,
        typer.Option("--names-port", min=0, max=65535, metavar="PORT", help="The embedded name service's (9876)."),
    ] = None,
    no_names: Annotated[bool, typer.Option("--no-names", help="No embedded name service.")] = False,
    namesrv: Annotated[
        str | None,
        typer.Option("--namesrv", metavar="HOST:PORT;…", help="Name servers to register with, instead of our own."),
    ] = None,
    acl: Annotated[
        Path | None,
        typer.Option("--acl", metavar="FILE", help="Accounts (plain_acl.yml), with acl/ beside it."),
    ] = None,
    tls_mode: Annotated[
        str | None, typer.Option("--tls-mode", metavar="MODE", help="disabled, permissive (default) or enforcing.")
    ] = None,
    tls_cert: Annotated[str | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate, PEM.")] = None,
    tls_key: Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Its key, PEM.")] = None,
    tls_ca: Annotated[
        str | None, typer.Option("--tls-ca", metavar="FILE", help="What clients' certificates are checked by, PEM.")
    ] = None,
    tls_client_auth: Annotated[
        str | None, typer.Option("--tls-client-auth", metavar="WORD", help="none (default), optional or require.")
    ] = None,
) -> None:
    """Serve the store to RocketMQ clients until SIGTERM or Ctrl-C: broker and name service in one process.

    Recovers the store first, as `recover` would; damage in the middle is refused (exit 4). A second start on the same
    store is refused (exit 3).
    """
    settings = settings_of(context)

    from engine.broker.settings import KEYS, BrokerSettings
    from engine.broker.tls import TlsSettings

    config = settings.load(KEYS)

    from engine.broker.serve import serve as run

    broker = BrokerSettings.of(
        config.other,
        listen_host=listen,
        listen_port=port,
        acl_file=None if acl is None else str(acl.absolute()),
        acl_enable=None if acl is None else True,
        name_servers=namesrv,
        tls=TlsSettings.of(
            config.other, mode=tls_mode, cert=tls_cert, key=tls_key, trust=tls_ca, client_auth=tls_client_auth
        ),
    )
    if names_port is None:
        names_port = None if broker.name_servers else 9876
    broker = replace(broker, name_service_port=None if no_names else names_port)
    answer = settings.output()

    def ready(where: Listening) -> None:
        if answer.json:
            answer.document({"broker": where.broker, "nameService": where.names})
        else:
            answer.text(f"The broker listens on {where.broker}.")
            if where.names is not None:
                answer.text(f"The name service listens on {where.names}.")

    settings.on_interrupt = "the store was closed"
    run(config, broker, ready=ready)
