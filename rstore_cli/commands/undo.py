"""`rstore undo`: take the last repair back, byte for byte."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import FOUND, OK, Settings, settings_of
from rstore_cli.render import Output, count, is_terminal, size

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.repair.repairs import Repair
    from engine.repair.undo import UndoPlan

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def undo(
    context: typer.Context,
    list_: Annotated[bool, typer.Option("--list", help="Only list the repairs of this store.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done (exit 1).")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Take the last repair back: every file becomes what it was before, from what the repair saved in salvage/.

    Refused (exit code 4) when the store has changed since. An undo that was killed is run again.
    """
    settings = settings_of(context)
    if list_:
        raise typer.Exit(_list(settings))
    raise typer.Exit(_dry(settings) if dry_run else _change(settings, yes=yes))


def _list(settings: Settings) -> int:
    from engine.files.disk import Disk
    from engine.repair.repairs import repairs
    from engine.repair.survey import survey

    output, disk = settings.output(), Disk()
    found = repairs(disk, survey(disk, settings.load()).root)
    if output.json:
        output.document({"repairs": [_described(repair) for repair in found]})
    elif not found:
        output.text("No repairs.")
    else:
        rows = [
            [r.name, r.manifest["command"], r.manifest["time"], str(len(r.pieces)), _state(r)] for r in reversed(found)
        ]
        output.table(["repair", "command", "time (UTC)", "pieces", "state"], rows, numbers=(3,))
    return OK


def _described(repair: Repair) -> dict[str, object]:
    return {
        "id": repair.name,
        "command": repair.manifest["command"],
        "time": repair.manifest["time"],
        "pieces": len(repair.pieces),
        "state": _state(repair),
    }


def _state(repair: Repair) -> str:
    if repair.undone:
        return "undone"
    if repair.undoing:
        return "undo interrupted"
    return "unfinished" if repair.applied is None else "done"


def _dry(settings: Settings) -> int:
    from engine.files.disk import Disk
    from engine.repair.undo import plan_undo

    plan = plan_undo(Disk(), settings.load())
    _show(settings.output(), plan, done=False)
    return FOUND


def _change(settings: Settings, *, yes: bool) -> int:
    from engine.files.disk import Disk
    from engine.files.lock import StoreLock
    from engine.repair.survey import survey
    from engine.repair.undo import plan_undo, undo

    output, config = settings.output(), settings.load()
    disk: Disk = Disk()
    with StoreLock(disk, survey(disk, config).root):
        plan = plan_undo(disk, config)
        if not output.json:
            _show(output, plan, done=False)
        if not (yes or _agreed(output)):
            output.warn("Nothing was changed.")
            return FOUND
        settings.on_interrupt = "the undo is not finished; run rstore undo again before anything else"
        undo(disk, plan)
        settings.on_interrupt = "the repair is undone"
    if output.json:
        output.document(plan.to_json(done=True))
    else:
        output.text("Done: the store is what it was before the repair.")
    return OK


def _show(output: Output, plan: UndoPlan, *, done: bool) -> None:
    said = plan.to_json(done=done)
    if output.json:
        output.document(said)
        return
    rows = [
        ("store", plan.root),
        ("undoes", "\n".join(said["undoes"])),
        ("restores", f"{size(plan.bytes_restored)} in {count(len(said['filesRestored']), 'file')}"),
        ("removes", f"{count(len(plan.created), 'file')} that the repair made"),
    ]
    if plan.resumed:
        rows.append(("note", "an undo was interrupted: this one ends it"))
    output.facts(rows)


def _agreed(output: Output) -> bool:
    if output.json or not is_terminal(sys.stdin):
        raise InvalidArgument(
            "undo asks before it changes a store, and nobody is here to answer",
            hint="--yes does it without asking, --dry-run only shows the plan",
        )
    sys.stdout.flush()
    print("Do it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
