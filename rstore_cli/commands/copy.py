"""`rstore copy`: topics of one running cluster to another, with the offsets of their groups."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.errors import InvalidArgument, NextStep
from engine.format.quantities import counted
from rstore_cli._common import FOUND, Settings, settings_of
from rstore_cli.change import agreed
from rstore_cli.cluster import TlsCa, client_config, servers_of_store
from rstore_cli.render import printable

if TYPE_CHECKING:
    from engine.copying.plan import AwayBroker, CopyPlan
    from engine.copying.run import CopyOutcome
    from rstore_cli.render import Output, Tick

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def copy(
    context: typer.Context,
    source: Annotated[
        str | None, typer.Option("--from", metavar="LIST", help="Name servers of the source, HOST:PORT;HOST:PORT.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--to", metavar="LIST", help="Name servers of the target, HOST:PORT;HOST:PORT.")
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="GLOB", help="Topics to copy, like 'order*' (repeatable; default: all)."),
    ] = None,
    progress: Annotated[
        Path | None,
        typer.Option(
            "--progress",
            metavar="DIR",
            help="Directory of the offset map, by which a copy resumes (default: ./copy-FROM-to-TO).",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new messages and offsets, until Ctrl-C.")
    ] = False,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, metavar="N", help="Messages a second at most.")
    ] = None,
    skip_refused: Annotated[
        bool, typer.Option("--skip-refused", help="Leave out messages that the target's broker refuses.")
    ] = False,
    patience: Annotated[
        float,
        typer.Option("--patience", min=0.1, metavar="SECONDS", help="How long a broker that is away is waited for."),
    ] = 60.0,
    tls_ca: TlsCa = None,
    from_tls_ca: Annotated[
        str | None, typer.Option("--from-tls-ca", metavar="FILE", help="As --tls-ca, of the source alone.")
    ] = None,
    to_tls_ca: Annotated[
        str | None, typer.Option("--to-tls-ca", metavar="FILE", help="As --tls-ca, of the target alone.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
) -> None:
    """Copy topics of a running cluster to another one, Apache's or rstore's, and set where their groups continue.

    Each message is copied once, in the order of its queue, with body, properties, keys, tags, unique id and born time.
    Run the same command again to resume after Ctrl-C, an error or a kill. A message is never copied back to where it
    came from. With one of --from and --to alone, the other is the daemon of --store. The account for brokers with an
    ACL is taken from RSTORE_FROM_ACCESS_KEY and RSTORE_FROM_SECRET_KEY for the source, RSTORE_TO_ACCESS_KEY and
    RSTORE_TO_SECRET_KEY for the target, where they are set, else from RSTORE_ACCESS_KEY and RSTORE_SECRET_KEY for both.
    Exit code 1 where something was left out because a broker has no master.
    """
    settings = settings_of(context)
    if source is None and target is None:
        hint = "--from HOST:PORT --to HOST:PORT; with one of them, the other is the daemon of --store"
        raise InvalidArgument("--from or --to is required", hint=hint)
    if source is None:
        source = servers_of_store(context)
    if target is None:
        target = servers_of_store(context)
    here = client_config(source, "", from_tls_ca or tls_ca, side="from")
    there = client_config(target, "", to_tls_ca or tls_ca, side="to")
    if set(here.name_servers) & set(there.name_servers):
        raise InvalidArgument("--from and --to name the same name server", hint="a cluster is not copied to itself")

    from engine.copying.run import CopyOrders
    from engine.copying.run import copy as run

    directory = progress or Path(f"copy-{_plain(here.name_servers)}-to-{_plain(there.name_servers)}")
    orders = CopyOrders(tuple(topics or ("*",)), directory, rate, follow, dry_run, skip_refused, patience)
    with ExitStack() as stack:
        outcome = run(here, there, orders, _Caller(settings, stack, directory, yes=yes, dry_run=dry_run))
    output = settings.output()
    if output.json:
        output.document(_json(outcome, directory))
    elif outcome.is_applied:
        _show_done(output, outcome)
    elif dry_run:
        _show_plan(output, outcome.plan, directory)
        output.text(f"Next: {NextStep(settings.again(), 'applies this plan')}")
    else:
        output.warn("Nothing was changed.")
    if not (outcome.is_applied and outcome.is_whole):
        raise typer.Exit(FOUND)


def _plain(servers: tuple[str, ...]) -> str:
    return "+".join("".join(c if c.isalnum() or c in ".-" else "_" for c in server) for server in servers)


class _Caller:
    """See engine.copying.run.CopyCaller."""

    def __init__(self, settings: Settings, stack: ExitStack, directory: Path, *, yes: bool, dry_run: bool) -> None:
        self._settings = settings
        self._output = settings.output()
        self._stack = stack
        self._directory = directory
        self._yes = yes
        self._dry_run = dry_run
        self._tick: Tick | None = None

    def note(self, text: str) -> None:
        self._output.note(f"note: {printable(text)}")

    def agrees(self, plan: CopyPlan) -> bool:
        if not self._output.json:
            _show_plan(self._output, plan, self._directory)
        if not (self._yes or agreed(self._output, "copy")):
            return False
        self._settings.on_interrupt = "what was copied is kept: run the same command again to resume"
        return True

    def copied(self, done: int, total: int) -> None:
        if self._tick is None:
            self._tick = self._stack.enter_context(self._output.progress("copying", is_bytes=False))
        self._tick(done, total)


def _show_plan(output: Output, plan: CopyPlan, directory: Path) -> None:
    rows = []
    for topic in plan.topics:
        messages = sum(queue.messages for queue in topic.queues)
        makes = ", ".join(f"{printable(broker)}: {number}" for broker, number in topic.makes.items())
        rows.append(
            (printable(topic.name), str(len(topic.queues)), f"{messages:,}", str(len(topic.groups)), makes or "-")
        )
    heads = ("topic", "queues", "messages", "groups", "queues to make")
    output.table(heads, rows, numbers=(1, 2, 3))
    for name, reason in plan.left_out.items():
        output.note(f"left out: {printable(name)}: {reason}")
    for broker in plan.away:
        output.warn(f"! left out: {_away(broker)}: no master of it is registered")
    word = "resumes the copy of" if plan.resumes else "new, in"
    output.text(f"{counted(plan.messages, 'message', zero=True)} to copy; offset map: {word} {directory}")


def _show_done(output: Output, outcome: CopyOutcome) -> None:
    groups = counted(len({row.group for row in outcome.groups.carried}), "group", zero=True)
    output.facts(
        [
            ("copied", f"{counted(outcome.copied, 'message', zero=True)} in {outcome.seconds:.1f} s"),
            ("copied before", counted(outcome.before, "message", zero=True)),
            ("doubles", counted(outcome.doubles, "message", zero=True)),
            ("left out", f"{counted(outcome.left_out, 'message', zero=True)} that came from the target"),
            ("deleted", f"{counted(outcome.deleted, 'message', zero=True)} by the source before they were copied"),
            ("refused", f"{counted(outcome.refused, 'message', zero=True)} by the target"),
            (
                "offsets",
                f"of {groups}, in {counted(len(outcome.groups.carried), 'queue', zero=True)}",
            ),
        ]
    )
    for broker in outcome.plan.away:
        output.warn(f"! left out: {_away(broker)}: run the same command again when its master is back")
    for away in outcome.groups.away:
        queue = away.queue
        output.warn(
            f"! consumer offsets of {printable(queue.topic)}/{queue.queue_id} of {printable(queue.broker)} at the "
            f"{away.side} were not carried: its broker has no master; run the same command again when it is back"
        )
    for queue, number in outcome.missing.items():
        output.warn(
            f"! {counted(number, 'message')} of {printable(queue.topic)}/{queue.queue_id} of {printable(queue.broker)} "
            "were neither copied nor left out: begin a new copy with another directory (--progress DIR)"
        )
    for row in outcome.groups.kept:
        queue = row.target
        output.warn(
            f"! group {printable(row.group)} keeps offset {row.kept} in {printable(queue.topic)}/{queue.queue_id} of "
            f"{printable(queue.broker)} at the target: the source's offset stands for {row.translated}"
        )


def _away(broker: AwayBroker) -> str:
    queues = counted(len(broker.queues), "queue")
    return f"messages and consumer offsets of {queues} of the source's broker {printable(broker.name)}"


def _json(outcome: CopyOutcome, directory: Path) -> dict[str, Any]:
    plan = outcome.plan
    return {
        "done": outcome.is_applied,
        "progress": str(directory),
        "resumes": plan.resumes,
        "topics": [
            {
                "topic": topic.name,
                "messages": sum(queue.messages for queue in topic.queues),
                "groups": list(topic.groups),
                "makes": dict(topic.makes),
                "queues": [
                    {"from": _queue(queue.source), "to": _queue(queue.target), "messages": queue.messages}
                    for queue in topic.queues
                ],
            }
            for topic in plan.topics
        ],
        "leftOutTopics": dict(plan.left_out),
        "away": [
            {"broker": one.name, "queues": [{"topic": q.topic, "queueId": q.queue_id} for q in one.queues]}
            for one in plan.away
        ],
        "offsetsAway": [
            {"side": one.side, "topic": one.queue.topic, **_queue(one.queue)} for one in outcome.groups.away
        ],
        "copied": outcome.copied,
        "copiedBefore": outcome.before,
        "doubles": outcome.doubles,
        "leftOut": outcome.left_out,
        "deleted": outcome.deleted,
        "refused": outcome.refused,
        "missing": [
            {"topic": queue.topic, **_queue(queue), "messages": number} for queue, number in outcome.missing.items()
        ],
        "seconds": round(outcome.seconds, 3),
        "offsets": [
            {
                "group": row.group,
                "from": _queue(row.source),
                "to": _queue(row.target),
                "offset": row.offset,
                "translated": row.translated,
                "kept": row.kept,
            }
            for row in (*outcome.groups.carried, *outcome.groups.kept)
        ],
    }


def _queue(queue: Any) -> dict[str, Any]:
    return {"broker": queue.broker, "queueId": queue.queue_id}
