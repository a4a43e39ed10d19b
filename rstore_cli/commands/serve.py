"""`rstore serve`: the same engine as a daemon that RocketMQ clients talk to."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import Settings, parse_duration, settings_of
from rstore_cli.commands.seal import parse_rate
from rstore_cli.daemon_log import Format, Level, begin
from rstore_cli.repository import Archive, ArchiveName, ArchiveOptions, KeyCommand, KeyFile

if TYPE_CHECKING:
    from engine.broker.net.ports import Listening
    from engine.config import BrokerRole
    from rstore_cli.render import Output

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def serve(
    context: typer.Context,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="ADDRESS", help="Address to listen on (default: 127.0.0.1).")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, metavar="PORT", help="Port of the broker (default: 10911)."),
    ] = None,
    names_port: Annotated[
        int | None,
        typer.Option(
            "--names-port", min=0, max=65535, metavar="PORT", help="Port of the embedded name server (default: 9876)."
        ),
    ] = None,
    no_names: Annotated[bool, typer.Option("--no-names", help="Start no embedded name server.")] = False,
    namesrv: Annotated[
        str | None,
        typer.Option(
            "--namesrv", metavar="HOST:PORT;…", help="Name servers to register with, instead of the embedded one."
        ),
    ] = None,
    acl: Annotated[
        Path | None,
        typer.Option(
            "--acl", metavar="FILE", help="ACL file (plain_acl.yml); acl/ in the same directory is read, too."
        ),
    ] = None,
    no_acl_strict: Annotated[
        bool, typer.Option("--no-acl-strict", help="Accounts need only the rights that Apache's broker asks for.")
    ] = False,
    names_allow: Annotated[
        str | None,
        typer.Option(
            "--names-allow",
            metavar="LIST",
            help="Addresses and networks that may write to the name server unsigned (default: none with an ACL, else "
            "all).",
        ),
    ] = None,
    admin_allow: Annotated[
        str | None,
        typer.Option(
            "--admin-allow",
            metavar="LIST",
            help="Addresses and networks besides this machine's that may change settings and delete files.",
        ),
    ] = None,
    tls_mode: Annotated[
        str | None, typer.Option("--tls-mode", metavar="MODE", help="disabled, permissive (default) or enforcing.")
    ] = None,
    tls_cert: Annotated[str | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate (PEM).")] = None,
    tls_key: Annotated[
        str | None, typer.Option("--tls-key", metavar="FILE", help="Private key of the certificate (PEM).")
    ] = None,
    tls_ca: Annotated[
        str | None,
        typer.Option("--tls-ca", metavar="FILE", help="CA certificates for checking clients' certificates (PEM)."),
    ] = None,
    tls_client_auth: Annotated[
        str | None, typer.Option("--tls-client-auth", metavar="WORD", help="none (default), optional or require.")
    ] = None,
    role: Annotated[
        str | None,
        typer.Option("--role", metavar="ROLE", help="async-master (default), sync-master or slave."),
    ] = None,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", min=0, metavar="N", help="0 for a master, 1 or more for a slave.")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            "--master", metavar="HOST:PORT", help="Master that a slave copies (default: as a name server answers)."
        ),
    ] = None,
    ha_tls: Annotated[
        bool | None,
        typer.Option("--ha-tls", help="Replication by TLS, with the same certificates: on the master and its slaves."),
    ] = None,
    ha_allow: Annotated[
        str | None,
        typer.Option(
            "--ha-allow",
            metavar="LIST",
            help="Slaves that may copy the log: addresses, networks, registered (default: whoever connects).",
        ),
    ] = None,
    ha_listen: Annotated[
        str | None,
        typer.Option(
            "--ha-listen",
            metavar="ADDRESS",
            help="Address to listen on for slaves (default: --listen; with an ACL or enforced TLS 127.0.0.1, unless "
            "--ha-allow or --ha-tls says who may copy).",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            min=0,
            max=65535,
            metavar="PORT",
            help="Serve /metrics, /health and /ready on this port (HTTP).",
        ),
    ] = None,
    console: Annotated[
        bool,
        typer.Option("--console", help="Serve the console beside it, in a process of its own: see rstore console."),
    ] = False,
    console_port: Annotated[
        int | None,
        typer.Option("--console-port", min=0, max=65535, metavar="PORT", help="Port of the console (default: 18080)."),
    ] = None,
    console_write: Annotated[
        bool, typer.Option("--console-write", help="The console may change the cluster: planned and confirmed.")
    ] = False,
    max_connections: Annotated[
        int | None,
        typer.Option("--max-connections", min=1, metavar="N", help="Maximum open connections (default: 20000)."),
    ] = None,
    scrub: Annotated[
        str | None,
        typer.Option(
            "--scrub", metavar="DURATION", help="Read the log once in this time and compare it with its seals, like 7d."
        ),
    ] = None,
    scrub_rate: Annotated[
        str | None,
        typer.Option("--scrub-rate", metavar="SIZE", help="Limit of bytes that --scrub reads a second, such as 50M."),
    ] = None,
    seal: Annotated[bool, typer.Option("--seal", help="Seal complete segments for --scrub: see rstore seal.")] = False,
    archive: Archive = None,
    archive_name: ArchiveName = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
    log_level: Annotated[Level, typer.Option("--log-level", help="Minimum log level.")] = Level.INFO,
    log_format: Annotated[
        Format | None,
        typer.Option("--log-format", help="Format of the daemon's log (default: text on a terminal, else json)."),
    ] = None,
    log_file: Annotated[
        Path | None,
        typer.Option("--log-file", metavar="FILE", help="Log file instead of stderr; rotated at 64 MiB, 8 kept."),
    ] = None,
) -> None:
    """Serve the store to RocketMQ clients until SIGTERM, SIGHUP or Ctrl-C: broker and name server in one process.

    Recovers the store first, as `recover` does; damage in the middle of the log is refused (exit code 4). A second
    start on the same store is refused (exit code 3). `rstore status`, `flush`, `expire` and `top` ask the running
    daemon.

    With --archive retention deletes a segment only when a snapshot in that repository has all its bytes, which are read
    back and compared, as by rstore expire --archive; segments that are not held stay, also on a full disk.
    """
    settings = settings_of(context)
    if not console and (console_port is not None or console_write):
        raise InvalidArgument("--console-port and --console-write require --console", hint="add --console")

    if scrub is None and (seal or scrub_rate is not None):
        raise InvalidArgument("--seal and --scrub-rate require --scrub", hint="add --scrub 7d")
    period_ms = None if scrub is None else parse_duration(scrub, "--scrub")
    archive_access = ArchiveOptions(archive, archive_name, key_file, key_command).access()

    from engine.broker.ha.settings import HaSettings
    from engine.broker.ha.slave_list import parse_slave_list
    from engine.broker.net.allow import parse_allow_list
    from engine.broker.net.tls import TlsSettings
    from engine.broker.settings.broker_settings import BrokerSettings

    config = settings.load()
    if role is not None:
        config = config.with_changes(broker_role=_role(role))
    slave = config.broker_role.value == "SLAVE"

    from engine.broker.serve import serve as run

    slaves = None if ha_allow is None else parse_slave_list(ha_allow, "--ha-allow")
    writers = None if names_allow is None else parse_allow_list("--names-allow", names_allow)
    admins = None if admin_allow is None else parse_allow_list("--admin-allow", admin_allow)
    broker = BrokerSettings.of(
        config.other,
        listen_host=listen,
        listen_port=port,
        config_file=None if settings.config is None else str(settings.config),
        acl_file=None if acl is None else str(acl.absolute()),
        acl_enable=None if acl is None else True,
        acl_strict=False if no_acl_strict else None,
        names_allow=writers,
        admin_allow=admins,
        name_servers=namesrv,
        tls=TlsSettings.of(
            config.other, mode=tls_mode, cert=tls_cert, key=tls_key, trust=tls_ca, client_auth=tls_client_auth
        ),
        metrics_port=metrics_port,
        connections=max_connections,
        ha=HaSettings.of(config.other, tls=ha_tls, allow=slaves, listen=ha_listen).with_master(master),
        broker_id=broker_id,
        scrub_period_ms=period_ms,
        scrub_rate=parse_rate(scrub_rate, "--scrub-rate"),
        seals=seal or None,
        archive=archive_access,
    )
    if slave and not broker.broker_id:
        broker = replace(broker, broker_id=1)
    if not slave and broker_id is None:
        broker = replace(broker, broker_id=0)  # whatever the file says, as BrokerStartup does
    if not slave and (broker.broker_id or master):
        raise InvalidArgument("--master and a --broker-id above 0 require --role slave", hint="add --role slave")
    if names_port is None:
        names_port = None if broker.name_servers else 9876
    broker = replace(broker, name_service_port=None if no_names else names_port)
    begin(log_level, log_format, log_file)
    answer = settings.output()

    def ready(where: Listening) -> None:
        _tell(answer, where)

    settings.on_interrupt = "the store was closed"
    if not console:
        run(config, broker, ready=ready)
        return
    import contextlib

    with contextlib.ExitStack() as beside:

        def ready_with_console(where: Listening) -> None:
            from engine.console.beside import ConsoleProcess

            ready(where)
            acl_file = broker.acl_paths()[0] if broker.acl_enable else None
            servers = where.names or broker.name_servers
            command = console_command(settings, servers, console_port, acl=acl_file, tls_ca=tls_ca, write=console_write)
            beside.enter_context(ConsoleProcess(command))

        run(config, broker, ready=ready_with_console)


def _tell(answer: Output, where: Listening) -> None:
    """Where it listens."""
    from engine.format.hosts import is_loopback

    if answer.json:
        answer.document(
            {
                "broker": where.broker,
                "listens": where.bound,
                "nameService": where.names,
                "metrics": where.metrics,
                "ha": where.ha,
                "haListens": where.ha_bound,
            }
        )
    else:
        reachable = "" if where.bound == where.broker else f"; clients connect to {where.broker}"
        answer.text(f"The broker listens on {where.bound}{reachable}.")
        if where.names_bound is not None:
            answer.text(f"The name server listens on {where.names_bound}.")
        if where.ha is not None:
            answer.text(f"Slaves connect to {where.ha}.")
            if is_loopback(where.ha_host) and not is_loopback(where.host):
                answer.text(f"Only slaves of this machine can: replication listens on {where.ha_bound}.")
        if where.url is not None:
            answer.text(f"Metrics and health are at {where.url}.")
    sys.stdout.flush()  # somebody may wait for it at the other end of a pipe


def console_command(
    settings: Settings,
    servers: str | None,
    port: int | None,
    *,
    acl: str | None,
    tls_ca: str | None,
    write: bool,
) -> list[str]:
    """The command line of the console beside a daemon: the same store, its cluster, the same accounts."""
    words = [sys.executable, "-m", "rstore_cli.app", *settings.named, "console"]
    words += ["--json"] if settings.json else []
    words += ["--namesrv", servers] if servers else []
    words += [] if port is None else ["--port", str(port)]
    words += ["--acl", acl] if acl else []
    words += ["--tls-ca", tls_ca] if tls_ca else []
    return [*words, "--console-write"] if write else words


def _role(text: str) -> BrokerRole:
    from engine.config import BrokerRole

    try:
        return BrokerRole(text.upper().replace("-", "_"))
    except ValueError:
        raise InvalidArgument(f"--role {text}", hint="async-master, sync-master or slave") from None
