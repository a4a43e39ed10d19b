"""`rstore rebuild-config`: make lost or broken files of config/ again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import parse_time, settings_of
from rstore_cli.change import ChangeCommand
from rstore_cli.render import count, printable, size

if TYPE_CHECKING:
    from engine.repair.config.plan import FilePlan, RebuildChoices, RebuildPlan

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_SHOWN = 12


@app.command()
def rebuild_config(
    context: typer.Context,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="PARTS", help="Rebuild only these: topics,groups,offsets,delay,filters."),
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Also files that are not broken: add entries that the queues show.")
    ] = False,
    offsets: Annotated[
        str,
        typer.Option(
            "--offsets",
            metavar="WHERE",
            help="Consumer offset where it is unknown: min (messages are consumed twice rather than lost), max, or a "
            "time.",
        ),
    ] = "min",
    from_: Annotated[
        list[Path] | None,
        typer.Option("--from", metavar="DIR", help="Also take entries from another config/ or store (repeatable)."),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="NAME", help="Make all queues of this topic readable.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", metavar="NAME", help="Allow this group to consume.")] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show the plan and change nothing: exit code 0 if nothing would change, else 1."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
) -> None:
    """Rebuild topics.json, subscriptionGroup.json, consumerOffset.json and delayOffset.json from log and queues.

    Rebuilds only files that are missing or broken, unless --only or --all is given. Known entries are kept: from the
    file as far as it can be read, its .tmp and .bak, the config history, and --from. The old files are saved to
    salvage/ in the store; rstore undo restores them. Times are ISO 8601 (local), epoch ms, or "2 hours ago".
    """
    settings = settings_of(context)
    from engine.repair.config.change import RebuildChange

    change = RebuildChange(_choices(only, all_, offsets, from_ or [], topic, group))
    raise typer.Exit(_RebuildConfig(settings, change).run(settings.load(), dry_run=dry_run, yes=yes))


def _choices(
    only: str | None, every: bool, offsets: str, places: list[Path], topic: str | None, group: str | None
) -> RebuildChoices:
    from engine.repair.config.plan import RebuildChoices, RebuildPart

    known = {part.value: part for part in RebuildPart}
    words = [] if only is None else [word.strip() for word in only.split(",")]
    bad = next((word for word in words if word not in known), None)
    if bad is not None:
        raise InvalidArgument(f"--only: unknown part {bad!r}", hint=", ".join(known))
    if every and words:
        raise InvalidArgument("--all and --only exclude each other")
    if (topic or group) and (every or words):
        raise InvalidArgument("--topic and --group exclude --only and --all")
    floor = offsets if offsets in ("min", "max") else parse_time(offsets, "--offsets")
    directories = tuple(str(place) for place in places)
    return RebuildChoices(frozenset(known[word] for word in words), every, floor, directories, topic, group)


class _RebuildConfig(ChangeCommand["RebuildPlan"]):
    def json(self, plan: RebuildPlan, *, done: bool, salvage: str | None) -> dict[str, Any]:
        return plan.to_json(salvage)

    def text(self, plan: RebuildPlan, *, done: bool, salvage: str | None) -> None:
        output = self.output
        if done:
            output.text(f"Done: {count(len(plan.changes), 'file')} written.")
            if salvage is not None:
                output.text(f"The old files are in {salvage}; rstore undo restores them.")
            return
        output.facts(
            [
                ("store", plan.files.root),
                ("rebuilds", "\n".join(_rebuild_text(one) for one in plan.changes) or "nothing"),
                ("unchanged", ", ".join(plan.unchanged) or "nothing"),
                ("offsets", self._offsets_text(plan)),
            ]
        )
        for one in plan.changes:
            self._lines(one)
        for problem in plan.problems:
            output.text(f"Note: {printable(problem)}")
        if not plan.changed:
            output.text("Nothing to do: no file of config/ is broken.")

    def _offsets_text(self, plan: RebuildPlan) -> str:
        floor = {
            "min": "the queue's first message (messages are consumed twice rather than lost)",
            "max": "the end of the queue (unread messages are skipped)",
        }.get(str(plan.choices.floor), "the first message stored at the given time or later")
        known = f"{count(plan.kept, 'offset')} kept, {count(plan.floored, 'offset')} unknown"
        return f"{known}; an unknown one becomes {floor} (--offsets)"

    def _lines(self, one: FilePlan) -> None:
        if one.lines:
            self.output.text(f"{one.name}:")
        for line in one.lines[:_SHOWN]:
            self.output.text(f"  - {printable(line)}")
        if len(one.lines) > _SHOWN:
            self.output.text(f"  … and {len(one.lines) - _SHOWN} more (--json lists all)")


def _rebuild_text(one: FilePlan) -> str:
    sources = f"; from {', '.join(one.sources[:4])}" if one.sources else ""
    more = f" and {len(one.sources) - 4} more" if len(one.sources) > 4 else ""
    holds = f"{count(one.entries, 'entry', 'entries')}, {size(len(one.data))}"
    return printable(f"config/{one.name} ({one.why}): {holds}{sources}{more}")
