"""A recovery's plan in words: what was found, what changes, what to do next."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.errors import DataIsAbsent
from engine.format.quantities import counted, moment
from rstore_cli.render import Output, count, messages_in, printable, short, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.inspect.store.consumers import LostUnread
    from engine.repair.recover.epoch_plan import EpochPlan
    from engine.repair.recover.ledger import Ledger
    from engine.repair.recover.plan import RecoverPlan
    from engine.repair.recover.timer_plan import TimerPlan

_SHOWN = 20


def show_plan(
    output: Output,
    plan: RecoverPlan,
    *,
    changes: bool,
    done: bool,
    salvage: str | None,
    keep: bool,
    ledger: Ledger | None = None,
    refused: bool | None = None,
    salvage_dir: str | None = None,
) -> None:
    """Print the plan, or what was done (`done`, with the salvage directory). `refused`: for other reasons, too."""
    if done:
        _show_result(output, plan, salvage, keep)
        if ledger is not None:
            show_ledger(output, ledger, done=True)
        return
    output.facts(
        [
            ("store", plan.files.root),
            ("recovery", _mode(plan)),
            *_read(plan),
            ("commit log", _log(plan)),
            *([("files", _layout(plan))] if plan.layout.changed else []),
            ("cut", _cut(plan)),
            *([("put back", _put_back(plan))] if plan.log.shifts else []),
            *([("from copies", _taken(plan))] if plan.log.taken else []),
            *([("bridged", _bridged(plan))] if plan.log.bridges else []),
            ("queues", _queues(plan)),
            ("index", _index(plan)),
            *([("timer", _timer(plan.timer))] if plan.timer is not None else []),
            *([("epochs", _epochs(plan.epochs))] if plan.epochs is not None else []),
            *([("marks", _marks(plan))] if changes else []),
        ]
    )
    _after(output, plan)
    _queue_table(output, plan)
    _list(output, "Moved to quarantine/:", [f"{_below(plan, o.path)}: {o.description}" for o in plan.set_aside])
    _list(output, "Found:", list(plan.problems))
    if ledger is not None:
        show_ledger(output, ledger, done=False)
    output.text()
    if refused and plan.refusal is None:
        output.text("REFUSED, nothing was changed. The plan above is what --yes would do.", style="red")
    elif plan.refusal is not None:
        to_bring = isinstance(plan.refusal, DataIsAbsent)  # no option gets past it
        lost = (
            plan.to is None
            and not to_bring
            and bool(plan.log.end.records_after or plan.log.end.gaps or plan.log.damage_before)
        )
        whole = "" if plan.unread else " --whole"
        shown = f"The plan above is what --cut{whole} would do."
        output.text("REFUSED, nothing was changed. " + (shown if lost else ""), style="red")
    elif not changes:
        output.text(_nothing_to_do(plan))
    elif not keep:
        output.text("Removed data is NOT saved (--no-salvage): it is lost for good.", style="yellow")
    else:
        place = salvage_dir or os.path.join(plan.files.root, "salvage")
        output.text(f"Removed and overwritten data is saved to {place} first.")


def _timer(timer: TimerPlan) -> str:
    what = f"timer log, wheel and timercheck are rebuilt, for {counted(timer.waiting, 'message')} that will wait"
    return f"{what} ({printable(timer.why)})"


def _epochs(epochs: EpochPlan) -> str:
    return f"{counted(len(epochs.entries), 'epoch')} kept, {len(epochs.removed)} removed ({printable(epochs.why)})"


def show_unread(output: Output, unread: Sequence[LostUnread]) -> None:
    """Print who has not read what goes."""
    if unread:
        output.text(
            f"NOT READ YET: {count(sum(one.messages for one in unread), 'message')} to be removed", style="yellow"
        )
        output.text()
        output.table(
            ["group", "topic", "queue", "its offset", "messages", "offsets"],
            [
                [
                    short(one.group),
                    short(one.queue.topic),
                    str(one.queue.queue_id),
                    str(one.offset),
                    f"{one.messages:,}",
                    f"{one.start} to {one.end - 1}",
                ]
                for one in unread[:_SHOWN]
            ],
            numbers=(2, 3, 4),
        )
        if len(unread) > _SHOWN:
            output.text(f"… and {len(unread) - _SHOWN} more (--json lists all)")
        output.text()


def show_ledger(output: Output, ledger: Ledger, *, done: bool) -> None:
    """Print which offsets are lost or renumbered, and which groups stand above a queue's maximum (and what to run)."""
    lost, numbers = [], []
    for line in ledger.queues:
        lost += [f"{short(str(line.queue))} {_span(span)}: lost at the end of the queue" for span in line.gone]
        lost += [
            f"{short(str(line.queue))} {_span(span)}: lost; this offset returns an adjacent message instead"
            for span in line.repeated
        ]
        numbers += [
            f"{line.queue}: the record at {one.physical_offset} has #{one.named} and gets #{one.queue_offset}"
            for one in line.renumbered
        ]
    if not done:
        _list(output, "Queue offsets whose messages are lost:", lost)
        _list(output, "Queue offsets that change:", numbers)
    _list(
        output,
        f"Groups whose offset {'is now' if done else 'will be'} above the end of the queue, and how to set it:",
        [
            f"{one.group} at {one.offset} in {one.queue}, which ends at {one.max_offset}: "
            + (one.command or "nothing to do: the broker corrects it at its start")
            for one in ledger.above
        ],
    )


def _span(span: tuple[int, int]) -> str:
    start, end = span
    return f"#{start}" if end == start + 1 else f"#{start} to #{end - 1} ({end - start})"


def _mode(plan: RecoverPlan) -> str:
    why = "abort file present: no clean shutdown" if plan.files.abort else "no abort file"
    line = f"{plan.mode.value} ({why})"
    start = plan.log.start_file
    if start is None:
        return f"{line}; the commit log is missing"
    line += f"\nrecovery start: segment {os.path.basename(start)}"
    if plan.mode.value == "abnormal":
        point = plan.files.checkpoint
        line += f", by the checkpoint (log {moment(point.physic_msg_timestamp)}, "
        line += f"queues {moment(point.logics_msg_timestamp)})"
    return line


def _read(plan: RecoverPlan) -> list[tuple[str, str]]:
    """Which segments were read, and which were not: damage is only found where somebody looked."""
    segments, unread = plan.files.log, plan.unread
    if not segments:
        return []
    if not unread:
        return [("read", f"{count(len(segments), 'segment')}, the whole log")]
    left = len(segments) - len(unread)
    return [
        ("read", f"the last {left} of {counted(len(segments), 'segment')}, from offset {plan.log.read_from}"),
        (
            "not read",
            f"{count(len(unread), 'segment')}, offsets {unread[0].offset} to {unread[-1].end}: damage there is not "
            f"found\nunless queue units are missing for it; {_whole_command(plan)} reads the whole log",
        ),
    ]


def _whole_command(plan: RecoverPlan) -> str:
    from engine.inspect.next_step import command_line

    words = ("recover",) if plan.to is None else ("truncate", "--to-offset", str(plan.to))
    return command_line(plan.files.config, *words, "--whole")


def _nothing_to_do(plan: RecoverPlan) -> str:
    """The verdict over what was read, and over no more."""
    if plan.to is not None:
        return "Nothing to do: the log already ends there."
    if plan.unread:
        left = len(plan.files.log) - len(plan.unread)
        return f"Nothing to do: no damage found in the last {left} of {counted(len(plan.files.log), 'segment')}."
    return "Nothing to do: no damage found in the log, and nothing to repair in queues and index."


def _log(plan: RecoverPlan) -> str:
    end = plan.log.end
    if not plan.files.log:
        return "no files"
    read = messages_in(end.messages, end.records, "sound record")
    line = f"{read} read; the log holds offsets {plan.log.min_offset} to {end.end}"
    if end.last_store_timestamp:
        line += f"\nlast message stored {moment(end.last_store_timestamp)}"
    return line


def _cut(plan: RecoverPlan) -> str:
    log = plan.log
    lines = []
    if log.bytes_cut:
        lost = log.end.records_after or log.end.stale is not None
        empty, gone = "" if lost else "contain no message and ", " or removed" if log.removed else ""
        lines.append(f"{size(log.bytes_cut)} after offset {log.end.end} {empty}will be zeroed{gone}")
    if log.removed:
        names = ", ".join(_below(plan, path) for path in sorted(log.removed)[:_SHOWN])
        empty = "" if log.bytes_cut else " (nothing in it)" if len(log.removed) == 1 else " (nothing in them)"
        lines.append(f"{count(len(log.removed), 'segment')} after the log end removed{empty}: {names}")
    if log.mends:
        lines.append(f"physicalOffset corrected in {count(len(log.mends), 'record')}")
    if log.requeued:
        lines.append(f"queueId and queueOffset corrected in {count(len(log.requeued), 'record')} (listed below)")
    if log.end.stale is not None:
        stale = log.end.stale
        lines.append(f"{count(stale.records, 'stale record')} after the log end saved and zeroed (listed below)")
    if log.end.records_after:
        what = "the damage" if plan.to is None else f"offset {log.end.end}"
        lines.append(f"{count(log.end.records_after, 'message')} after {what} (listed below)")
    if plan.ext:
        lines.append(f"{size(sum(cut.bytes_cut for cut in plan.ext))} of {count(len(plan.ext), 'queue extension')}")
    return "\n".join(lines) or "nothing"


def _layout(plan: RecoverPlan) -> str:
    """Files of the log that get another name or length; the findings say which."""
    layout = plan.layout
    short = sum(1 for one in layout.resizes if one.segment.short)
    parts = [
        (len(layout.relocations), "is renamed to its offset", "are renamed to their offsets"),
        (short, "is padded with zeros to its size", "are padded with zeros to their size"),
        (len(layout.resizes) - short, "is cut to its size", "are cut to their size"),
    ]
    some = [f"{n} {one if n == 1 else more}" for n, one, more in parts if n]
    return f"{', '.join(some)} (listed below)"


def _put_back(plan: RecoverPlan) -> str:
    return f"{count(sum(s.records for s in plan.log.shifts), 'record')} moved to their offsets within a segment"


def _taken(plan: RecoverPlan) -> str:
    lost = size(sum(one.length for one in plan.log.taken))
    return f"{lost} of records restored over damage from copies of the segments"


def _bridged(plan: RecoverPlan) -> str:
    bridges = plan.log.bridges
    lost = size(sum(bridge.length for bridge in bridges))
    return f"{count(len(bridges), 'damaged range')} ({lost}); no physical or queue offset changes"


def _queues(plan: RecoverPlan) -> str:
    changed = [queue for queue in plan.every_queue if queue.changed]
    if not plan.every_queue:
        return "none in files; those in RocksDB: see below" if plan.starts_again else "none"
    if not changed:
        return f"{count(len(plan.every_queue), 'queue')}, unchanged"
    return f"{count(len(plan.every_queue), 'queue')}, {len(changed):,} to change"


def _index(plan: RecoverPlan) -> str:
    index = plan.index
    if not index.enabled:
        return (
            "not checked: the commit log is missing" if not plan.files.log else "not checked (messageIndexEnable=false)"
        )
    parts = []
    if index.removed:
        parts.append(f"{count(len(index.removed), 'file')} removed ({', '.join(index.removed[:5])})")
    parts += [f"{r.name} keeps {r.keep} of {counted(r.had, 'entry', 'entries')}" for r in index.rewinds[:5]]
    if index.keys_put:
        parts.append(f"{count(index.keys_put, 'key')} inserted again")
    line = "; ".join(parts) or f"{count(len(index.names_after), 'file')}, unchanged"
    if index.trusted:
        line += f"\n{len(index.trusted)} of {count(len(index.names_after), 'file')} not compared with the log"
    return line


def _marks(plan: RecoverPlan) -> str:
    if plan.trap is not None:
        return "the abort file is kept: damage stays in the log, and a normal start would cut the log there (see below)"
    if plan.starts_again:
        return "the abort file is kept: its broker builds queues in RocksDB when it starts as after a crash"
    abort = "the abort file is removed; " if plan.files.abort else ""
    return f"{abort}the checkpoint says that everything up to the last message is on disk"


def _after(output: Output, plan: RecoverPlan) -> None:
    after = plan.log.end.after
    if not after:
        return
    output.text()
    records = sum(n for n, _ in after.values())
    what = "Sound messages after the damage at" if plan.to is None else "Messages to be removed, from offset"
    output.text(f"{what} {plan.log.end.end}: {records:,} in {count(len(after), 'queue')}")
    output.text()
    rows = sorted(after.items(), key=lambda item: -item[1][0])
    output.table(
        ["topic", "queue", "messages", "bytes"],
        [[short(q.topic), str(q.queue_id), f"{n:,}", size(b)] for q, (n, b) in rows[:_SHOWN]],
        numbers=(1, 2, 3),
    )
    if len(rows) > _SHOWN:
        output.text(f"… and {count(len(rows) - _SHOWN, 'more queue')} (--json lists all)")


def _queue_table(output: Output, plan: RecoverPlan) -> None:
    changed = [queue for queue in plan.every_queue if queue.changed]
    if not changed:
        return
    output.text()
    output.text("Queues to change:")
    output.text()
    output.table(
        ["topic", "queue", "offsets", "units cut", "rebuilt", "filled"],
        [
            [
                short(q.queue.topic),
                str(q.queue.queue_id),
                f"{q.min_offset} to {q.max_offset}",
                f"{q.units_cut:,}",
                f"{q.units_rebuilt:,}",
                f"{q.units_filled:,}",
            ]
            for q in changed[:_SHOWN]
        ],
        numbers=(1, 2, 3, 4, 5),
    )
    if len(changed) > _SHOWN:
        output.text(f"… and {count(len(changed) - _SHOWN, 'more queue')} (--json lists all)")


def _list(output: Output, title: str, lines: list[str]) -> None:
    if not lines:
        return
    output.text()
    output.text(title)
    for line in lines[:_SHOWN]:
        output.text(f"  - {printable(line)}")
    if len(lines) > _SHOWN:
        output.text(f"  … and {len(lines) - _SHOWN} more (--json lists all)")


def _show_result(output: Output, plan: RecoverPlan, salvage: str | None, keep: bool) -> None:
    end = plan.log.end
    output.text()
    output.text(f"Done. The log ends at {end.end}.")
    if salvage is not None:
        output.text(f"Removed and overwritten data is in {salvage}")
    elif plan.changed and not keep:
        output.text("Removed data was not saved.")
    if plan.trap is not None:
        output.text(
            f"Damage stays in the log at {plan.trap.offset} ({plan.trap.reason}): the abort file is kept, "
            "so that the next recovery starts after it."
        )
    if plan.starts_again:
        output.text("Its own broker builds its queues in RocksDB from the log when it starts; start it next.")


def _below(plan: RecoverPlan, path: str) -> str:
    return os.path.relpath(path, plan.files.root)
