"""Snapshots, and the check of a repository, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.format.quantities import moment
from rstore_cli.render import count, printable, size

if TYPE_CHECKING:
    from engine.backup.check import RepositoryCheck
    from engine.backup.create.create import Created
    from engine.backup.listing import ListedSnapshot, SnapshotDetail
    from engine.backup.status import BackupLag
    from rstore_cli.render import Output

_SHOWN = 20


def show_created(output: Output, created: Created) -> None:
    """What a backup has done."""
    snapshot = created.snapshot
    rate = f", {size(int(created.read / created.seconds))}/s" if created.seconds >= 0.1 else ""
    output.text(
        f"Snapshot {created.name.short}: {count(snapshot.messages, 'message')}, offsets {snapshot.start} to "
        f"{snapshot.end}, {count(len(snapshot.files), 'file')} beside the log"
    )
    output.text(
        f"{size(created.read)} read, {size(created.reused)} taken from the last snapshot, {size(snapshot.added)} "
        f"added to the repository, in {created.seconds:.1f} s{rate}"
    )
    if snapshot.is_live:
        output.text("The store is locked by a running process: the snapshot ends with the last whole record.")


def show_list(output: Output, listed: list[ListedSnapshot]) -> None:
    """The snapshots as a table."""
    if not listed:
        output.text("No snapshots.")
        return
    rows = []
    for one in listed:
        snapshot = one.snapshot
        if snapshot is None:
            rows.append([one.name.short, moment(one.name.time_ms), "can't be read: rstore backup check", "", "", ""])
            continue
        log = snapshot.end - snapshot.start
        last = moment(snapshot.newest_time) if snapshot.newest_time else ""
        rows.append(
            [one.name.short, moment(one.name.time_ms), printable(snapshot.store), size(log), size(snapshot.added), last]
        )
    output.table(("snapshot", "finished", "store", "log", "added", "last message"), rows, numbers=(3, 4), whole=(0,))


def show_lags(output: Output, lags: list[BackupLag], most_ms: int | None) -> None:
    """How old the newest snapshots are, as a table."""
    if not lags:
        output.text("No snapshots.")
        return
    rows = [
        [
            printable(one.store),
            one.name.short,
            moment(one.name.time_ms),
            str(one.snapshot.end),
            "" if one.lag_bytes is None else size(one.lag_bytes),
            f"{one.lag_ms / 1000:.1f} s",
            "late" if most_ms is not None and one.lag_ms > most_ms else "",
        ]
        for one in lags
    ]
    output.table(("store", "snapshot", "finished", "log up to", "lag", "lag", ""), rows, numbers=(3, 4, 5), whole=(1,))


def show_snapshot(output: Output, detail: SnapshotDetail) -> None:
    """One snapshot."""
    snapshot = detail.snapshot
    output.facts(
        [
            ("snapshot", detail.name.snapshot_id),
            ("store", printable(snapshot.store)),
            ("made", f"{moment(snapshot.started)} to {moment(snapshot.finished)}"),
            ("by", f"{printable(snapshot.by)} on {printable(snapshot.host)}, rstore {printable(snapshot.version)}"),
            ("broker", "running" if snapshot.is_live else "stopped"),
            ("log", f"offsets {snapshot.start} to {snapshot.end}, {count(snapshot.messages, 'message')}"),
            ("added", size(snapshot.added)),
        ]
    )
    output.text()
    rows = [
        [
            str(one.offset),
            str(one.end),
            f"{one.messages:,}",
            moment(one.first_time) if one.first_time else "",
            moment(one.newest_time) if one.newest_time else "",
            str(len(one.damage)) if one.damage else "",
        ]
        for one in detail.segments
    ]
    output.table(("segment", "to", "messages", "first message", "last message", "damage"), rows, numbers=(0, 1, 2, 5))
    damage = [one for segment in detail.segments for one in segment.damage]
    for one in damage[:_SHOWN]:
        output.text(f"  - damage at {one.offset}, {one.length} bytes: {one.reason}")
    if len(damage) > _SHOWN:
        output.text(f"  … and {len(damage) - _SHOWN} more (--json lists all)")
    output.text()
    for file in snapshot.files[:_SHOWN]:
        output.text(f"  {printable(file.path)}  {size(file.size)}")
    if len(snapshot.files) > _SHOWN:
        output.text(f"  … and {len(snapshot.files) - _SHOWN} more (--json lists all)")
    for path in snapshot.skipped:
        output.text(f"  not backed up: {printable(path)}")


def show_check(output: Output, result: RepositoryCheck) -> None:
    """What a check of a repository found."""
    output.text(
        f"{count(result.snapshots, 'snapshot')}, {count(result.pieces, 'piece')}, {size(result.size)}; "
        f"{count(result.read, 'piece')} read; {result.seconds:.1f} s"
    )
    if result.unused:
        output.text(
            f"{count(result.unused, 'object')} ({size(result.unused_size)}) in no snapshot: rstore backup prune"
        )
    for bad in result.bad[:_SHOWN]:
        needs = ", ".join(bad.snapshots)
        output.text(f"  - {printable(bad.name)}: {printable(bad.why)}; snapshots that need it: {needs}")
    if len(result.bad) > _SHOWN:
        output.text(f"  … and {len(result.bad) - _SHOWN} more (--json lists all)")
    if result.bad:
        output.text("What the store still has of it is stored again by: rstore backup create --full")
    else:
        output.text(
            "Nothing is wrong." if result.read == result.pieces else "Nothing is wrong in the part that was read."
        )
