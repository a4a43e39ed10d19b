"""What `rstore salvage` says to people."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.format.quantities import counted, moment
from rstore_cli.render import count, messages_in, printable, short, size

if TYPE_CHECKING:
    from engine.inspect.dump.salvage_list import Detail, Inventory, RepairEntry
    from engine.inspect.dump.salvage_scan import ScanReport, ScanTotals
    from engine.repair.replay.plan import ReplayPlan
    from engine.repair.salvage.prune import PrunePlan
    from rstore_cli.render import Output

_SHOWN = 20
_MORE = "(--json lists all)"


def show_scan(output: Output, report: ScanReport) -> None:
    """What a scan found."""
    lost = [lost_range for lost_range in report.lost if lost_range.file is not None]
    missing = [lost_range for lost_range in report.lost if lost_range.file is None]
    rows = [
        ("sound", f"{_tally(report.sound)}"),
        ("lost", f"{size(report.lost_bytes)} in {count(len(lost), 'range')}"),
        (
            "missing",
            f"{size(report.missing_bytes)} in {count(len(missing), 'gap')} between segments" if missing else "none",
        ),
        ("blanks", f"{count(report.blanks, 'file end')}, {size(report.blank_bytes)}"),
    ]
    if report.displaced.records:
        nearest = ", ".join(f"{n} by {d:+d} bytes" for d, n in report.distances.most_common(3))
        rows.append(("displaced", f"{_tally(report.displaced)}: off {nearest}"))
    if report.bridged:
        rows.append(("bridged", f"{count(report.bridged, 'inert record')}, {size(report.bridged_bytes)}"))
    if report.live:
        rows.append(("note", "the store is locked by a running process: the log end was not checked"))
    output.facts(rows)
    for lost_range in report.lost[:_SHOWN]:
        place = f"{lost_range.offset} to {lost_range.offset + lost_range.length}, {lost_range.length} bytes"
        where = "" if lost_range.file is None else f", {lost_range.file} from byte {lost_range.position} on"
        output.text()
        output.text(f"lost: {place}{where}: {lost_range.reason}{' (accepted)' if lost_range.accepted else ''}")
        output.text(f"  after it: {_tally(lost_range.after)}")
        for queue, (records, taken) in sorted(lost_range.after.queues.items())[:_SHOWN]:
            output.text(f"    {short(queue.topic)}/{queue.queue_id}  {count(records, 'record')}, {size(taken)}")
        if len(lost_range.after.queues) > _SHOWN:
            output.text(f"    … and {counted(len(lost_range.after.queues) - _SHOWN, 'more queue')} {_MORE}")
    if len(report.lost) > _SHOWN:
        output.text(f"… and {len(report.lost) - _SHOWN} more {_MORE}")
    for path, why in report.odd:
        output.text(f"not read: {path}: {why} (--file reads it)")


def show_inventory(output: Output, inventory: Inventory) -> None:
    """The repairs, and what is in quarantine."""
    if not inventory.entries:
        output.text("No repairs.")
    else:
        heads = ["repair", "command", "state", "pieces", "space", "sound records", "replayed"]
        output.table(heads, [_row(entry) for entry in reversed(inventory.entries)], numbers=(3, 4, 5, 6), whole=(0,))
        output.text(f"salvage/ takes {size(inventory.disk_bytes)}")
    for path, taken, why in inventory.leftovers:
        output.text(f"also in salvage/: {os.path.basename(path)}, {size(taken)}: {why}")
    if inventory.quarantine:
        output.text()
        rows = [[printable(path), str(taken), by or "-", why or "-"] for path, taken, by, why in inventory.quarantine]
        output.table(["in quarantine/", "bytes", "repair", "why"], rows, numbers=(1,), whole=(0,))


def _row(entry: RepairEntry) -> list[str]:
    summary = entry.to_json()
    replayed = sum(run.messages for run in entry.runs)
    return [
        summary["id"],
        summary["command"],
        summary["state"],
        str(summary["pieces"]),
        size(entry.disk_bytes),
        str(entry.report.sound.records),
        "?" if entry.unreadable else str(replayed),
    ]


def show_detail(output: Output, detail: Detail) -> None:
    """One repair."""
    entry = detail.entry
    summary = entry.to_json()
    rows = [
        ("repair", summary["id"]),
        ("resumed from", "\n".join(summary["resumedFrom"]) or "-"),
        ("command", summary["command"]),
        ("time (UTC)", summary["time"]),
        ("state", summary["state"]),
        ("directory", entry.saved.directory),
        ("space", size(entry.disk_bytes)),
        (
            "of the log",
            f"{size(summary['logBytes'])}: {_tally(entry.report.sound)}, {size(entry.report.lost_bytes)} lost",
        ),
    ]
    rows += [("replay", _run(run)) for run in summary["replays"]]
    if entry.unreadable:
        rows.append(("replay", entry.unreadable))
    output.facts(rows)
    output.text()
    heads = ["action", "path", "offset", "length", "sound records", "saved as", "why"]
    pieces = [
        [
            piece["action"],
            printable(piece["path"]),
            str(piece["offset"]),
            str(piece["length"]),
            str(piece.get("records", "-")),
            printable(piece["file"] or piece["target"] or "-"),
            piece["why"],
        ]
        for piece in detail.pieces
    ]
    output.table(heads, pieces, numbers=(2, 3, 4), whole=(1, 5))


def _run(run: dict[str, object]) -> str:
    into = "its own store" if run["target"] == "." else str(run["target"])
    return f"{counted(int(str(run['messages'])), 'message')} into {into}" + ("" if run["done"] else ", interrupted")


def show_replay(output: Output, plan: ReplayPlan, *, done: bool) -> None:
    """What a replay puts; or that it has."""
    share = plan.share
    if done:
        output.text()
        output.text(f"Done: {count(share.messages, 'message')} put back into {plan.target.root}.")
        return
    into = plan.target.root + (" (is created, with the sizes of the repair's store)" if plan.target.make else "")
    rows = [
        ("repair", plan.saved.id),
        ("into", into),
        ("puts", f"{count(share.messages, 'message')}, {size(share.size)}"),
    ]
    if plan.resumed:
        rows.append(("resumes", f"an interrupted replay: {count(plan.run.messages, 'message')} were already put"))
    if plan.target.recovery is not None and plan.target.recovery.changed:
        rows.append(("first", "the store is recovered: the interrupted replay did not close it"))
    if share.at_once or share.waiting:
        rows.append(
            (
                "delayed",
                f"{share.at_once} are due and are delivered at once, {share.waiting} wait for their delivery time",
            )
        )
    rows += [
        ("skipped", f"{count(records, 'record')}, {size(taken)}: {why.value}")
        for why, (records, taken) in share.skipped.items()
    ]
    rows += [("no record", f"{size(s.length)} at {s.offset}: {s.reason}") for s in plan.report.lost[:_SHOWN]]
    output.facts(rows)
    if share.queues:
        output.text()
        heads = ["queue", "messages", "stored", "to", "new offsets from", "to"]
        queues = [
            [
                f"{short(queue.topic)}/{queue.queue_id}",
                str(one.messages),
                moment(one.first),
                moment(one.last),
                str(one.start),
                str(one.start + one.messages - 1),
            ]
            for queue, one in sorted(share.queues.items())
        ]
        output.table(heads, queues, numbers=(1, 4, 5))
    for place, topic, reason in share.refused[:_SHOWN]:
        output.text(f"  - can't be put: the record at {place} ({short(topic)}): {printable(reason)}")
    for group, queue, offset, end in plan.consumers[:_SHOWN]:
        output.text(
            f"  - {printable(group)} is at {offset} in {printable(str(queue))}, which ends at {end}: it will not "
            f"read new messages below {offset} (rstore offsets set lowers it)"
        )
    if len(plan.consumers) > _SHOWN:
        output.text(f"  … and {len(plan.consumers) - _SHOWN} more {_MORE}")
    for problem in plan.problems:
        output.text(f"  - {printable(problem)}")
    output.text()
    output.text("Consumers get them as new messages." if plan.changed else "Nothing to replay.")


def show_prune(output: Output, plan: PrunePlan, *, done: bool) -> None:
    """What goes; or that it is gone."""
    if done:
        output.text()
        output.text(f"Done: {size(plan.bytes_freed)} freed.")
        return
    if plan.pruned:
        rows = [
            [
                one.saved.id,
                one.saved.state,
                size(one.disk_bytes),
                str(one.records) if one.records else "-",
                one.keeps_manifest or "-",
            ]
            for one in plan.pruned
        ]
        output.table(["repair", "state", "space", "records lost", "manifest kept"], rows, numbers=(2, 3), whole=(0,))
    for path, taken in plan.abandoned:
        output.text(f"to be removed: {os.path.basename(path)}, {size(taken)}: no manifest")
    for name, why in plan.kept:
        output.text(f"to be kept: {name}: {why}")
    lost = sum(one.records for one in plan.pruned)
    output.text()
    if lost:
        output.text(f"{count(lost, 'sound record')} that are neither in the log nor replayed will be lost.")
    output.text("These repairs can then no longer be undone." if plan.changed else "Nothing to prune.")


def _tally(tally: ScanTotals) -> str:
    if not tally.records:
        return "no records"
    counted = messages_in(tally.messages, tally.records)
    return f"{counted}, {size(tally.size)}, stored {moment(tally.first)} to {moment(tally.last)}"
