"""`rstore offsets`: where consumer groups stand, and setting one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import FOUND, settings_of
from rstore_cli.change import ChangeCommand
from rstore_cli.render import count, printable, short

if TYPE_CHECKING:
    from engine.repair.config.consumer_offsets import OffsetPlan

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=False,
    help="List consumer offsets (config/consumerOffset.json), or set one.",
)


@app.command("list")
def list_(
    context: typer.Context,
    group: Annotated[str | None, typer.Option("--group", help="Only this group.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None,
) -> None:
    """List the consumer offset of every group and queue. Exit code 1 when one is outside of its queue."""
    settings = settings_of(context)
    output = settings.output()

    from engine.files.disk import Disk
    from engine.repair.config.consumer_offsets import list_offsets

    offsets, problems = list_offsets(Disk(), settings.load(), group=group, topic=topic)
    for problem in problems:
        output.note(f"note: {printable(problem)}")
    if output.json:
        for one in offsets:
            output.line(one.to_json())
    elif not offsets:
        output.text("No consumer offsets.")
    else:
        rows = [
            [
                short(one.group),
                short(one.queue.topic),
                str(one.queue.queue_id),
                str(one.offset),
                "not read" if one.min_offset is None else f"{one.min_offset} to {one.max_offset}",
                "?" if one.unread is None else str(one.unread),
                one.problem or "",
            ]
            for one in offsets
        ]
        output.table(["group", "topic", "queue", "offset", "queue has", "unread", ""], rows, numbers=(2, 3, 5))
    if any(one.problem for one in offsets) or problems:
        raise typer.Exit(FOUND)


@app.command("set")
def set_(
    context: typer.Context,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")],
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    queue: Annotated[int, typer.Argument(metavar="QUEUE", min=0, help="The queue id.")],
    to: Annotated[str, typer.Argument(metavar="OFFSET", help="The new consumer offset: a queue offset, min or max.")],
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show the plan and change nothing: exit code 0 if nothing would change, else 1."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
) -> None:
    """Set the consumer offset of a group in a queue of a closed store. rstore undo undoes it.

    The old file is also kept as consumerOffset.json.bak. The plan warns when the store does not know the group.
    """
    from engine.log.derive import TopicQueue
    from engine.repair.config.change import OffsetChange

    settings = settings_of(context)
    if to not in ("min", "max") and not to.isdecimal():
        raise InvalidArgument(f"not a queue offset: {to!r}", hint="use a number, min or max")
    change = OffsetChange(group, TopicQueue(topic, queue), int(to) if to.isdecimal() else to)
    raise typer.Exit(_SetOffset(settings, change).run(settings.load(), dry_run=dry_run, yes=yes))


class _SetOffset(ChangeCommand["OffsetPlan"]):
    def json(self, plan: OffsetPlan, *, done: bool, salvage: str | None) -> dict[str, Any]:
        return {**plan.to_json(), "salvage": salvage}

    def text(self, plan: OffsetPlan, *, done: bool, salvage: str | None) -> None:
        if done:
            self.output.text(f"Done. The old file is in {salvage}; rstore undo restores it.")
            return
        skipped = plan.skipped
        means = f"{count(skipped, 'message')} will not be read" if skipped > 0 else ""
        means = f"{count(-skipped, 'message')} will be read again" if skipped < 0 else means
        self.output.facts(
            [
                ("file", plan.path + (f" ({printable(plan.problem)}: read its .bak)" if plan.problem else "")),
                ("group", short(plan.group) + ("" if plan.unknown is None else " (UNKNOWN)")),
                ("queue", f"{short(str(plan.queue))}, which has {plan.min_offset} to {plan.max_offset}"),
                ("offset", f"{'none' if plan.old is None else plan.old} becomes {plan.new}"),
                ("means", means or "no message is skipped, none is read again"),
            ]
        )
        if plan.unknown is not None:
            self.output.text(f"Note: {printable(plan.unknown)}")
        if not plan.changed:
            self.output.text("Nothing to do: the group has that offset already.")
