"""`rstore undo`: take the last repair back, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rstore_cli._common import OK, Settings, settings_of
from rstore_cli.change import ChangeCommand
from rstore_cli.render import count, size

if TYPE_CHECKING:
    from engine.repair.salvage.undo import UndoPlan

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def undo(
    context: typer.Context,
    list_: Annotated[bool, typer.Option("--list", help="List the repairs of this store and change nothing.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing (exit code 1).")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
) -> None:
    """Undo the last repair: restore every file from what the repair saved in salvage/.

    Refused (exit code 4) when the store has changed since. After a kill, run it again: it resumes.
    """
    settings = settings_of(context)
    if list_:
        raise typer.Exit(_list(settings))
    from engine.repair.salvage.change import UndoChange

    raise typer.Exit(_Undo(settings, UndoChange()).run(settings.load(), dry_run=dry_run, yes=yes))


def _list(settings: Settings) -> int:
    from engine.files.disk import Disk
    from engine.inspect.store.odd import demand_saved
    from engine.inspect.store.repairs import repairs
    from engine.inspect.store.survey import survey

    output, disk = settings.output(), Disk()
    root = survey(disk, settings.load()).root
    demand_saved(disk, root)
    saved = repairs(disk, root)
    if output.json:
        output.document({"repairs": [repair.to_json() for repair in saved]})
    elif not saved:
        output.text("No repairs.")
    else:
        rows = [
            [r.name, r.manifest["command"], r.manifest["time"], str(len(r.pieces)), r.state] for r in reversed(saved)
        ]
        output.table(["repair", "command", "time (UTC)", "pieces", "state"], rows, numbers=(3,), whole=(0,))
    return OK


class _Undo(ChangeCommand["UndoPlan"]):
    def json(self, plan: UndoPlan, *, done: bool, salvage: str | None) -> dict[str, Any]:
        return plan.to_json(done=done)

    def text(self, plan: UndoPlan, *, done: bool, salvage: str | None) -> None:
        if done:
            self.output.text("Done: the store is as it was before the repair.")
            return
        summary = plan.to_json(done=False)
        rows = [
            ("store", plan.root),
            ("undoes", "\n".join(summary["undoes"])),
            ("restores", f"{size(plan.bytes_restored)} in {count(len(summary['filesRestored']), 'file')}"),
            ("removes", f"{count(len(plan.created), 'file')} that the repair created"),
        ]
        if plan.resumed:
            rows.append(("note", "resumes an interrupted undo"))
        self.output.facts(rows)
