"""`rstore promote`: a slave's store becomes a master's."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rstore_cli._common import settings_of
from rstore_cli.change import ChangeCommand, Verbose
from rstore_cli.master_options import master_of
from rstore_cli.remote_broker import Acl, HaTls, TlsCa, TlsCert, TlsKey

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.rewind.promote import PromotePlan

_SHOWN = 20
app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def promote(
    context: typer.Context,
    master: Annotated[
        str | None,
        typer.Option(
            "--master", metavar="HOST:PORT", help="Broker address of the old master: refused while it answers."
        ),
    ] = None,
    conf: Annotated[
        Path | None,
        typer.Option(
            "--conf", metavar="FILE", help="Configuration file of the broker: brokerRole and brokerId are set in it."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Promote while the old master answers.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show the plan and change nothing: exit code 0 if nothing would change, else 1."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
    acl: Acl = None,
    ha_tls: HaTls = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    verbose: Verbose = False,
) -> None:
    """Make the store of a stopped slave one that a master starts on, and show what that means.

    Shown are how far its log goes, how old the tables of its master are, what groups have read, and what is yet to be
    delivered. The store is recovered, offsets beyond their queues are brought back, and with --conf the broker's file
    says that it is a master; its old content is kept beside it. Without --master, haMasterAddress says where to ask.
    """
    settings = settings_of(context)
    config = settings.load()

    from engine.rewind.promote_change import PromoteChange

    path = None if conf is None else _real(conf, config)
    old = None
    if master is not None:
        old = master_of(config, master, acl=acl, ha_tls=ha_tls, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key)
    change = PromoteChange(old, _service(config.other.get("haMasterAddress", ""), path), path, force)
    raise typer.Exit(_Promote(settings, change, verbose=verbose).run(config, dry_run=dry_run, yes=yes))


def _real(conf: Path, config: StoreConfig) -> str:
    """Where the file lies: who runs the command has named it, but what links in a store lead to is not changed."""
    place, root = os.path.abspath(conf), os.path.abspath(config.store_path_root_dir)
    is_within = os.path.commonpath((place, root)) == root
    return place if is_within and not config.follow_links else os.path.realpath(place)


def _service(known: str, conf: str | None) -> str:
    """The address of the old master's replication service, of the settings or of the file that is changed."""
    if known or conf is None:
        return known
    from engine.broker_conf.properties import read_properties
    from engine.files.disk import Disk

    disk = Disk()
    if not disk.exists(conf):
        return ""  # the change says so
    return read_properties(disk.read_file(conf)).values.get("haMasterAddress", "").strip()


class _Promote(ChangeCommand["PromotePlan"]):
    def json(self, plan: PromotePlan, *, done: bool, salvage: str | None) -> dict[str, Any]:
        return plan.to_json(salvage=salvage)

    def text(self, plan: PromotePlan, *, done: bool, salvage: str | None) -> None:
        from rstore_cli.plan_text import show_plan

        if not done:
            self._show_state(plan)
            self._show_groups(plan)
        if plan.repair.would_change or plan.repair.refusal is not None:
            show_plan(
                self.output,
                plan.repair,
                changes=plan.repair.would_change,
                done=done,
                salvage=salvage,
                keep=True,
                refused=self.change.refusal(plan) is not None,
            )
        elif done:
            self.output.text("Done.")
        if plan.conf is not None and plan.conf.changes:
            self.output.text()
            words = ("is" if done else "will be", "is" if done else "will be")
            self.output.text(f"{plan.conf.path} {words[0]} changed; its old content {words[1]} in {plan.conf.kept}:")
            for key, old, new in plan.conf.changes:
                self.output.text(f"  {key}={new}" + ("" if old is None else f" (was {old})"))

    def _show_state(self, plan: PromotePlan) -> None:
        from engine.format.quantities import moment
        from rstore_cli.render import count, size
        from rstore_cli.status_text import duration

        last = plan.repair.log.end.last_store_timestamp
        old = plan.old
        if old.address is None:
            master = "not known: make sure that it is stopped, or name it with --master"
        elif not old.answers:
            master = f"{old.address} does not answer"
        elif plan.behind is None:
            master = f"{old.address} ANSWERS"
        elif not plan.behind:
            master = f"{old.address} ANSWERS; its log has nothing that this one lacks"
        else:
            master = f"{old.address} ANSWERS; its log has {size(plan.behind)} more than this one"
        facts = [
            ("store", plan.files.root),
            ("old master", master),
            (
                "log",
                f"ends at {plan.end}" + (f"; last message stored {moment(last)}" if last else "")
                + "\nwhat the old master acknowledged after that is in its store alone: keep that",
            ),
        ]  # fmt: skip
        if plan.rebuilt:
            facts.append(("queues", f"{count(plan.rebuilt, 'message')} not in a queue yet: they get there"))
        for name, written in sorted(plan.tables_ms.items()):
            age = duration(max(0, int(time.time() * 1000) - written))
            facts.append((name, f"copied from the master {moment(written)}, {age} ago; read again since then"))
        if plan.delayed:
            waiting = sum(plan.delayed.values())
            facts.append(
                (
                    "delayed",
                    f"{count(waiting, 'message')} of {count(len(plan.delayed), 'level')} to be delivered; some may be "
                    "delivered\nonce more: those that the old master delivered after its offsets were copied",
                )
            )
        if plan.half:
            facts.append(
                ("transactions", f"up to {count(plan.half, 'half message')} to be settled: their producers are asked")
            )
        self.output.facts(facts)
        for problem in plan.problems:
            self.output.warn(problem)

    def _show_groups(self, plan: PromotePlan) -> None:
        from rstore_cli.render import short

        if plan.groups:
            self.output.text()
            self.output.table(
                ["group", "not read yet", "offsets beyond the queue"],
                [[short(one.group), f"{one.unread:,}", str(one.beyond)] for one in plan.groups[:_SHOWN]],
                numbers=(1, 2),
            )
            if len(plan.groups) > _SHOWN:
                self.output.text(f"… and {len(plan.groups) - _SHOWN} more (--json lists all)")
        if plan.offsets.back:
            self.output.text()
            self.output.text("Offsets beyond the end of a queue are brought back to it (--json lists them).")
        self.output.text()
