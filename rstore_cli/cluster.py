"""The options of commands that talk to a running cluster, and the client that they stand for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import settings_of

if TYPE_CHECKING:
    import ssl

    from engine.client.client import ClientConfig, ClusterClient
    from engine.client.peers import Credentials

NameServers = Annotated[
    str | None,
    typer.Option("--namesrv", metavar="LIST", envvar="NAMESRV_ADDR", help="Name servers, HOST:PORT;HOST:PORT."),
]
Namespace = Annotated[str, typer.Option("--namespace", metavar="NAME", help="Namespace of topics and groups.")]
TlsCa = Annotated[
    str | None,
    typer.Option("--tls-ca", metavar="FILE", help="Connect by TLS, to brokers that this CA certifies (PEM)."),
]
ACCESS, SECRET = "RSTORE_ACCESS_KEY", "RSTORE_SECRET_KEY"
"""Environment variables of the account: a command line is seen by every user of the machine."""


def is_of_cluster(context: typer.Context) -> bool:
    """Whether a command is to go to the cluster of --namesrv, not to a store or its daemon.

    What was typed is stronger than what the environment says: a store that is typed is meant, whatever NAMESRV_ADDR is.
    """
    if not context.params.get("namesrv"):
        return False
    source = context.get_parameter_source("namesrv")
    is_typed = source is not None and source.name == "COMMANDLINE"
    return is_typed or not settings_of(context).typed_store


def client_config(namesrv: str | None, namespace: str, tls_ca: str | None, *, side: str = "") -> ClientConfig:
    """How to reach the cluster. `side`: `from` or `to` where a command talks to two; its name servers, and account.

    Raises:
        InvalidArgument: no name server, or half an account.
    """
    from engine.client.client import ClientConfig
    from engine.wire.address import parse_address
    from rstore_cli.client_log import show_warnings

    show_warnings()
    servers = tuple(dict.fromkeys(filter(None, (part.strip() for part in (namesrv or "").split(";")))))
    if not servers:
        option = f"--{side}" if side else "--namesrv"
        more = ", or --store DIR for the daemon of a store" if side else ", or NAMESRV_ADDR in the environment"
        raise InvalidArgument(f"{option} is required", hint=f"{option} HOST:PORT{more}")
    for server in servers:
        parse_address(server)
    return ClientConfig(servers, namespace, _account(side), None if tls_ca is None else _trusting(tls_ca))


async def demand_topic(client: ClusterClient, topic: str) -> None:
    """Raises InvalidArgument: no broker serves the topic; it names the nearest ones. `topic`: without namespace."""
    from engine.client.admin.session import AdminSession
    from engine.errors import NoRoute

    wire = client.wire_name(topic)
    try:
        await client.route(wire)
    except NoRoute:
        await AdminSession(client).demand_topic(wire)


def _account(side: str) -> Credentials | None:
    """The account of the environment: of this side, where it has its own. Raises InvalidArgument: half of one."""
    from engine.client.peers import Credentials

    names = [(ACCESS, SECRET)]
    if side:
        names.insert(0, (_of_side(ACCESS, side), _of_side(SECRET, side)))
    for access_name, secret_name in names:
        access, secret = os.environ.get(access_name), os.environ.get(secret_name)
        if (access is None) != (secret is None):
            raise InvalidArgument(f"{access_name} and {secret_name} go together")
        if access is not None and secret is not None:
            return Credentials(access, secret)
    return None


def _of_side(name: str, side: str) -> str:
    return name.replace("RSTORE_", f"RSTORE_{side.upper()}_")


def client_of(context: typer.Context, namesrv: str | None, namespace: str, tls_ca: str | None) -> ClientConfig:
    """How to reach the cluster of --namesrv, or else the daemon of --store.

    Raises:
        As `client_config`. StorageError: no daemon runs on the store, or clients find it at no name server.
    """
    if not is_of_cluster(context):
        namesrv = servers_of_store(context) or namesrv
    return client_config(namesrv, namespace, tls_ca)


def servers_of_store(context: typer.Context) -> str | None:
    """Name servers of the daemon of --store or -c, as the option takes them; None: no store is named.

    Raises:
        StorageError: no daemon runs on the store, or clients find it at no name server.
    """
    settings = settings_of(context)
    if settings.store is None and settings.config is None:
        return None
    from engine.daemon import name_servers_of

    return ";".join(name_servers_of(settings.load().store_path_root_dir))


def _trusting(path: str) -> ssl.SSLContext:
    import ssl

    from engine.errors import from_os_error

    try:
        context = ssl.create_default_context(cafile=path)
    except ssl.SSLError as error:
        raise InvalidArgument(f"not a certificate: {error.reason}", path=path) from None
    except OSError as error:
        raise from_os_error(error, "reading a certificate", path) from None
    context.check_hostname = False  # brokers register by address, and their certificates name none
    return context
