"""`rstore backup forget --archived-before`: segments of archives, planned and removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import typer

from engine.format.quantities import moment
from rstore_cli._common import FOUND, OK
from rstore_cli.change import agreed
from rstore_cli.render import count, printable, size

if TYPE_CHECKING:
    from engine.backup.archive.removal import RemovalPlan
    from engine.backup.repository import Repository
    from rstore_cli.render import Output


def forget_archived(
    output: Output, repository: Repository, before_ms: int, name: str | None, *, dry_run: bool, yes: bool
) -> NoReturn:
    """Show what goes, ask, and remove it.

    Raises:
        typer.Exit: always. As `engine.backup.archive.removal.forget_archived`.
    """
    from engine.backup.archive import removal

    done = False

    def agrees(plan: RemovalPlan) -> bool:
        nonlocal done
        if not output.json:
            _show(output, plan)
        done = not dry_run and (yes or agreed(output, "forget"))
        return done

    plan = removal.forget_archived(repository, before_ms, name, agrees)
    if output.json:
        output.document({**plan.to_json(), "dryRun": dry_run})
    elif not plan.changed:
        _show(output, plan)
    elif done:
        output.text("Done. Next: rstore backup prune")
    raise typer.Exit(FOUND if plan.changed and not done else OK)


def _show(output: Output, plan: RemovalPlan) -> None:
    """Which archived segments go, archive by archive."""
    for one in plan.archives:
        if one.segments:
            stored = "" if one.newest_time is None else f", messages up to {moment(one.newest_time)}"
            text = f"remove {count(one.segments, 'archived segment')} ({size(one.size)}) below {one.end}{stored}"
            output.text(f"{text}  {printable(one.store)}")
        first = "the archive is empty then" if one.begins is None else f"the archive begins at {one.begins} then"
        output.text(f"{count(one.stay, 'archived segment')} to keep, {first}  {printable(one.store)}")
    if plan.changed:
        output.text("Once pruned, messages that no snapshot and no store has are gone.")
    else:
        output.text("Nothing to remove.")
