"""`rstore heal`: damaged pieces of the log are fetched from copies, proved and written."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rstore_cli._common import FOUND, OK, Jobs, settings_of
from rstore_cli.change import ChangeCommand, SalvageDir, Verbose, absolute
from rstore_cli.remote_broker import Acl, HaPort
from rstore_cli.repository import KeyCommand, KeyFile

if TYPE_CHECKING:
    from engine.heal.change import HealChange
    from engine.heal.plan import HealPlan
    from engine.heal.sources import HealSource

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def heal(
    context: typer.Context,
    sources: Annotated[
        list[str],
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="Where copies are: repo:LOCATION, a store's directory, HOST:PORT of a broker. Repeatable.",
        ),
    ],
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Use the snapshots of this store only (default: of all)."),
    ] = None,
    seals: Annotated[
        Path | None,
        typer.Option("--seals", metavar="DIR", help="The seals of the log's segments (default: seals/ in the store)."),
    ] = None,
    ha_port: HaPort = None,
    acl: Acl = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show the plan and change nothing: exit code 0 if nothing would change, else 1."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
    verbose: Verbose = False,
    salvage_dir: SalvageDir = None,
    jobs: Jobs = None,
) -> None:
    """Fill in damaged and missing parts of the log from copies: backups, other stores, running brokers.

    Also what recover --bridge gave up, and, where segments have seals, each byte that changed. Only the damaged ranges
    are fetched. Each is proved to be this log's before it is written; where copies differ, none is taken. Shows the
    plan and asks; old bytes are saved to salvage/ first. Sources are only read. The store must be closed. Exit code 1
    when damage is left that no copy could be proved for.
    """
    settings = settings_of(context)

    from engine.errors import InvalidArgument, RStoreError
    from engine.files.disk import Disk
    from engine.heal.change import HealChange
    from rstore_cli.copies import source_of

    config = settings.load()
    with contextlib.ExitStack() as open_ones:
        opened: list[HealSource] = []
        failed: list[RStoreError] = []
        for given in sources:
            try:
                source = source_of(
                    given,
                    Disk(),
                    config,
                    key_file=key_file,
                    key_command=key_command,
                    name=name,
                    ha_port=ha_port,
                    acl=acl,
                )
            except InvalidArgument:
                raise
            except RStoreError as error:
                failed.append(error)
                continue
            open_ones.callback(source.close)
            opened.append(source)
        if not opened:
            raise failed[0]
        for one in failed:
            settings.output().warn(f"a source is passed over: {one}")
        again = ("heal", *(word for given in sources for word in ("--from", given)))
        change = HealChange(tuple(opened), again, jobs, absolute(salvage_dir), absolute(seals))
        command = _Heal(settings, change, verbose=verbose)
        code = command.run(config, dry_run=dry_run, yes=yes)
    raise typer.Exit(FOUND if code == OK and command.left else code)


class _Heal(ChangeCommand["HealPlan"]):
    change: HealChange
    left = 0

    def json(self, plan: HealPlan, *, done: bool, salvage: str | None) -> dict[str, Any]:
        self.left = len(plan.left)
        return plan.to_json(salvage=salvage)

    def text(self, plan: HealPlan, *, done: bool, salvage: str | None) -> None:
        from rstore_cli.heal_text import show_heal

        self.left = len(plan.left)
        show_heal(self.output, plan, done=done, salvage=salvage, salvage_dir=self.change.salvage_dir)
