"""`rstore rewind`: an old master goes back to where its log and the new master's diverged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rstore_cli._common import settings_of
from rstore_cli.change import ChangeCommand, SalvageDir, Verbose, absolute
from rstore_cli.master_options import master_of
from rstore_cli.remote_broker import Acl, HaPort, HaTls, TlsCa, TlsCert, TlsKey

if TYPE_CHECKING:
    from engine.rewind.change import RewindChange
    from engine.rewind.rewind import RewindPlan

_SHOWN = 20
app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def rewind(
    context: typer.Context,
    to: Annotated[
        str, typer.Option("--to", metavar="HOST:PORT", help="Broker address of the new master (its port: 10911).")
    ],
    ha_port: HaPort = None,
    verify_all: Annotated[
        bool, typer.Option("--verify-all", help="Compare the whole log up to the cut, not only the last 8 MiB.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show the plan and change nothing: exit code 0 if nothing would change, else 1."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
    salvage_dir: SalvageDir = None,
    acl: Acl = None,
    ha_tls: HaTls = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    verbose: Verbose = False,
) -> None:
    """Make the store of an old master that of a slave of the new one: cut it where the two logs diverged.

    The divergence is searched by comparing a few records with the new master's, Apache's or rstore's. What only
    this store has is saved to salvage/ first; the commands that send those messages to the new master are shown. Then
    rstore replicate, or the broker as a slave, follows the new master.
    """
    settings = settings_of(context)
    config = settings.load()

    from engine.rewind.change import RewindChange

    master = master_of(
        config, to, ha_port=ha_port, acl=acl, ha_tls=ha_tls, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key
    )
    change = RewindChange(master, verify_all, absolute(salvage_dir))
    raise typer.Exit(_Rewind(settings, change, verbose=verbose).run(config, dry_run=dry_run, yes=yes))


class _Rewind(ChangeCommand["RewindPlan"]):
    change: RewindChange

    def json(self, plan: RewindPlan, *, done: bool, salvage: str | None) -> dict[str, Any]:
        return plan.to_json(salvage=salvage)

    def text(self, plan: RewindPlan, *, done: bool, salvage: str | None) -> None:
        from rstore_cli.plan_text import show_plan

        if not done:
            self._show_divergence(plan)
        if plan.cut is not None:
            show_plan(
                self.output,
                plan.cut.repair,
                changes=plan.cut.repair.would_change,
                done=done,
                salvage=salvage,
                keep=True,
                ledger=replace(plan.cut.ledger, above=()),
                refused=self.change.refusal(plan) is not None,
                salvage_dir=self.change.salvage_dir,
            )
        self._show_offsets(plan, done=done)
        self._show_next(plan, salvage, done=done)

    def _show_divergence(self, plan: RewindPlan) -> None:
        from engine.format.quantities import moment
        from rstore_cli.render import count, size

        master, divergence = plan.master, plan.divergence
        compared = 0 if divergence is None else divergence.common - divergence.compared_from
        facts = [("master", f"{master.address}, whose log holds offsets {master.start} to {master.end}")]
        if divergence is None:
            facts.append(("only here", "nothing: the log is empty"))
        else:
            tail = divergence.tail
            facts.append(
                (
                    "diverged at",
                    f"offset {divergence.common}; {size(compared)} before it compared, "
                    f"{size(divergence.fetched)} read from the master",
                )
            )
            if not tail.records:
                facts.append(("only here", "no message: the master has all of this log"))
            else:
                queues = 0 if plan.cut is None else len(plan.cut.repair.log.end.after)
                facts.append(
                    (
                        "only here",
                        f"{count(plan.messages, 'message')} in {count(queues, 'queue')} "
                        f"({size(tail.end - divergence.common)})\n"
                        f"stored {moment(tail.first_ms)} to {moment(tail.last_ms)}",
                    )
                )
        self.output.facts(facts)
        self.output.text()

    def _show_offsets(self, plan: RewindPlan, *, done: bool) -> None:
        from rstore_cli.render import short

        if not plan.offsets.back or done:
            return
        self.output.text()
        self.output.text("Groups that have read messages to be removed; their offsets become the end of the queue:")
        self.output.text()
        self.output.table(
            ["group", "topic", "queue", "offset", "becomes", "messages read"],
            [
                [
                    short(one.group),
                    short(one.queue.topic),
                    str(one.queue.queue_id),
                    str(one.old),
                    str(one.new),
                    f"{one.old - one.new:,}",
                ]
                for one in plan.offsets.back
            ],
            numbers=(2, 3, 4, 5),
        )

    def _show_next(self, plan: RewindPlan, salvage: str | None, *, done: bool) -> None:
        from engine.format.quantities import counted

        commands, others = plan.messages_back(salvage), plan.delayed_back(salvage)
        if commands:
            self.output.text()
            when = ":" if done else ", once the rewind is done:"
            self.output.text(f"To send the removed messages to the new master{when}")
            for command in commands[:_SHOWN]:
                self.output.text(f"  {command}")
            if len(commands) > _SHOWN:
                self.output.text(f"  … and {len(commands) - _SHOWN} more (--json lists all)")
        if others is not None:
            self.output.text()
            self.output.text(
                f"{counted(plan.of_brokers, 'message')} of these are delayed or of transactions, which no broker takes "
                "from a producer; as what they stand for, into a store of their own:"
            )
            self.output.text(f"  {others}")
