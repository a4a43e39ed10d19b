"""`rstore plan-start`: what a broker started now would do to the store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from rstore_cli._common import settings_of
from rstore_cli.render import Output, count, printable, short, size

if TYPE_CHECKING:
    from engine.repair.start.plan_start import StartPlan

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_SHOWN = 20
_STARTS = {"opens": "would succeed", "refuses": "would fail", "crashes": "would crash", "hangs": "would hang"}


@app.command(name="plan-start")
def plan_start(
    context: typer.Context,
    version: str = typer.Option(
        "", "--as", metavar="RELEASE", help="Release that is started: 4.9.8, 5.3.1, 5.3.3, 5.4.0, 5.5.0, or 4.9, 5.3 …"
    ),
) -> None:
    """Show what an Apache RocketMQ broker would do to this store if it were started now.

    By the rules of the release that the store's files tell of (4.9.8 where nothing in it is RocketMQ 5's), or of --as.
    Normal or abnormal recovery, the recovery start, where it would cut the log, which files would be deleted, which
    messages and keys would be lost, or why it would not start. Reads only. Exit code 4 when data would be lost, 1 when
    the broker would not start.
    """
    from engine.files.disk import Disk
    from engine.repair.start.plan_start import plan_start as look

    settings = settings_of(context)
    output = settings.output()
    config = settings.load(numpy=True)
    with output.progress("reading the log") as tick:
        conf = None if settings.config is None else str(settings.config)
        plan = look(Disk(), config, conf=conf, version=version or None, progress=tick)
    if not output.json:
        _show(output, plan)
    elif plan.refusal is None:
        output.document(plan.to_json())
    if plan.refusal is not None:
        settings.refused_plan = plan.to_json()
        raise plan.refusal
    if plan.apache.outcome.value != "opens":
        raise typer.Exit(1)


def _show(output: Output, plan: StartPlan) -> None:
    apache, files = plan.apache, plan.files
    why = "abort file present" if files.abort else "no abort file"
    removed = [os.path.basename(segment.path) for segment in apache.removed[:_SHOWN]]
    removed += [f"index/{name}" for name in plan.index_removed[:_SHOWN]]
    facts = [
        ("store", files.root),
        (
            "release",
            f"RocketMQ {plan.rules.release}; the store is of {plan.sign or 'RocketMQ 4.9, as far as it tells'}",
        ),
        ("broker start", f"{_STARTS[apache.outcome.value]}{f'; {apache.why}' if apache.why else ''}"),
        ("recovery", f"{apache.mode.value} ({why})"),
    ]
    if apache.start is not None:  # else it refuses before it reads or cuts anything
        facts += [
            ("reads from", os.path.basename(apache.start.path)),
            ("reads", f"{size(plan.bytes_to_scan)}, about {plan.seconds:.1f} s at this machine's rate"),
            ("log afterwards", f"{apache.min_offset} to {apache.max_offset}, {count(apache.records, 'record')} read"),
            ("cuts", f"{size(plan.bytes_cut)} after {apache.end}" if plan.bytes_cut else "nothing"),
            ("files that would be deleted", ", ".join(removed) or "none"),
        ]
    if plan.beside:
        facts.append(("not planned", ", ".join(plan.beside)))
    output.facts(facts)
    for line in [*plan.settings, *(line for line in plan.problems[:_SHOWN] if line != apache.why)]:
        output.text(f"  - {printable(line)}")
    lost = sorted(plan.after.keys() | plan.short.keys())
    if lost:
        output.text()
        output.table(
            ["topic", "queue", "cut with the log", "not in its queue"],
            [
                [short(q.topic), str(q.queue_id), f"{plan.after.get(q, (0, 0))[0]:,}", f"{plan.short.get(q, 0):,}"]
                for q in lost[:_SHOWN]
            ],
            numbers=(1, 2, 3),
        )
        if len(lost) > _SHOWN:
            output.text(f"… and {count(len(lost) - _SHOWN, 'more queue')} (--json lists all)")
    output.text()
    if plan.loses:
        output.text(f"LOST if a broker starts now: {', '.join(plan.loses)}.", style="red")
    elif plan.absent is not None:
        output.text(f"Unknown whether messages or keys would be lost: {plan.absent} is missing.")
    elif not plan.compared:
        output.text("Unknown whether messages or keys would be lost: queues were not compared with the log.")
    elif plan.apache.outcome.value == "opens":
        output.text("No message and no key would be lost.")
    if plan.next is not None and plan.refusal is None:
        output.text(f"Next: {plan.next}")
