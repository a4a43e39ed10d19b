"""`rstore backup create`: a snapshot of a store, or one after another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import FOUND, OK, Jobs, parse_duration, parse_size, settings_of
from rstore_cli.backup_follow import follow_store
from rstore_cli.backup_text import show_created
from rstore_cli.interrupt import ended_by_a_signal
from rstore_cli.remote_broker import Acl, HaPort, HaTls, TlsCa, TlsCert, TlsKey, signer_of, tls_of
from rstore_cli.repository import KeyCommand, KeyFile, Repo, open_repo

if TYPE_CHECKING:
    from engine.backup.create.origin import StoreOrigin

_SHORTEST_MS = 100


def create(
    context: typer.Context,
    repo: Repo = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Name of the store in the repository (default: HOST:DIR; with --from the broker's name).",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Read all of the log, and prove the pieces that are there.")
    ] = False,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="SIZE", help="Limit of bytes read a second, such as 50M.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="HOST:PORT", help="Back up the store of this running broker, over replication."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep the repository seconds after the store, until Ctrl-C or SIGTERM.")
    ] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="DURATION", help="With --follow: look for new messages this often.")
    ] = "1s",
    metrics_file: Annotated[
        Path | None,
        typer.Option(
            "--metrics-file",
            metavar="FILE",
            help="With --follow: write the lag to this file, for node_exporter's textfile collector.",
        ),
    ] = None,
    ha_port: HaPort = None,
    acl: Acl = None,
    ha_tls: HaTls = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    jobs: Jobs = None,
) -> None:
    """Back up the store, or with --from that of a running broker: a snapshot of log and configuration.

    A broker may be running on the store: its lock is not taken, and the snapshot ends with the last whole record.
    Segments that the last snapshot has are not read again; after an interruption, run it again. With --follow a
    snapshot replaces the one before it; the last one of each hour stays. Exit code 1 when something could not be
    backed up, or the log has damage.
    """
    settings = settings_of(context)
    output = settings.output()
    pace = None if rate is None else parse_size(rate, "--rate")
    if pace == 0:
        raise InvalidArgument("--rate must be more than 0")
    every_ms = parse_duration(every, "--every")
    if every_ms < _SHORTEST_MS:
        raise InvalidArgument(f"--every must be at least {_SHORTEST_MS} ms")
    if metrics_file is not None and not follow:
        raise InvalidArgument("--metrics-file without --follow: there is no lag to write")
    config = settings.load()
    repository = open_repo(repo, key_file, key_command)
    settings.on_interrupt = "no snapshot was made; what is stored so far is not stored again"

    from engine.backup.create.create import CreateOptions, create_from, store_name
    from engine.files.disk import Disk

    disk = Disk()
    options = CreateOptions(name, full, None if source else pace, jobs)

    def opened() -> StoreOrigin:
        if source is None:
            from engine.backup.create.origin import LocalOrigin

            return LocalOrigin(disk, config, store_name(config))
        from engine.backup.create.remote import RemoteOrigin
        from engine.client.remote_broker import RemoteBroker

        tls = tls_of(config.other, ha_tls, tls_ca, tls_cert, tls_key)
        remote = RemoteBroker(source, ha_port=ha_port, tls=tls, signer=signer_of(acl))
        return RemoteOrigin(disk, remote, pace)

    with ended_by_a_signal():
        if follow:
            root = None if source else config.store_path_root_dir
            follow_store(settings, disk, opened(), repository, options, every_ms / 1000, metrics_file, root)
            return
        with output.progress("backing up") as tick:
            created = create_from(disk, opened(), repository, options, tick)
    if output.json:
        output.document(created.to_json())
    else:
        show_created(output, created)
    for note in created.notes:
        output.warn(note)
    raise typer.Exit(FOUND if created.notes else OK)
