"""Removes what repairs saved, once nobody needs it: their space is freed, and undo is no longer possible.

A manifest stays where it still tells something: ranges of the log that were accepted or bridged (check and recovery
ask for them), and the last repair's, so that undo can say why it does nothing. A repair that is not finished, or whose
replay or undo is not, stays whole.

Killed at any point: run again. First the mark (`pruned.json`), then the pieces, then the manifest, the mark last; of
repairs that resumed killed ones the oldest goes first, so that none ever looks like one that was just killed.
"""

from __future__ import annotations

import calendar
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import CannotRepair, Refused
from engine.inspect.dump.salvage_list import ABANDONED, disk_bytes, leftovers, read_known_runs
from engine.inspect.dump.saved_log import SavedLog, SavedRepair, find_repair, log_spans, missing_copies, saved_repairs
from engine.inspect.dump.whole_records import batches, whole_records
from engine.inspect.store.repairs import APPLIED, MANIFEST, PRUNED, REPLAYED, UNDOING, UNDONE, manifest_ranges
from engine.inspect.store.survey import surveyed
from engine.log.source import ClosedLog
from engine.repair.trees import remove_tree

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles

_TELLING = (APPLIED, UNDOING, UNDONE, REPLAYED, PRUNED)
"""What a directory holds beside pieces and manifest, in the order in which it goes."""


@dataclass(frozen=True, slots=True)
class PrunedRepair:
    """A repair whose pieces go. `disk_bytes`: bytes that come back. `records`: sound ones that are nowhere else.

    `keeps_manifest`: why the manifest stays; None: all of it goes.
    """

    saved: SavedRepair
    disk_bytes: int
    records: int
    keeps_manifest: str | None


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What goes: repairs, directories without a manifest (`abandoned`: path, bytes). `kept`: what stays, and why."""

    root: str
    pruned: tuple[PrunedRepair, ...]
    abandoned: tuple[tuple[str, int], ...]
    kept: tuple[tuple[str, str], ...]

    @property
    def changed(self) -> bool:
        """Whether anything goes."""
        return bool(self.pruned or self.abandoned)

    @property
    def bytes_freed(self) -> int:
        """Bytes that come back."""
        return sum(one.disk_bytes for one in self.pruned) + sum(size for _, size in self.abandoned)

    def to_json(self, *, done: bool) -> dict[str, Any]:
        """The JSON of `salvage prune`."""
        return {
            "pruned": [
                {
                    "id": one.saved.id,
                    "resumedFrom": [repair.name for repair in one.saved.repairs[:-1]],
                    "diskBytes": one.disk_bytes,
                    "recordsLost": one.records,
                    "manifestKept": one.keeps_manifest,
                }
                for one in self.pruned
            ],
            "abandoned": [{"path": os.path.basename(path), "diskBytes": size} for path, size in self.abandoned],
            "kept": [{"id": name, "why": why} for name, why in self.kept],
            "bytesFreed": self.bytes_freed,
            "changed": self.changed,
            "done": done,
        }


def plan_prune(
    disk: Disk,
    store: StoreConfig | StoreFiles,
    *,
    ids: Sequence[str] = (),
    keep: int | None = None,
    before_ms: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PrunePlan:
    """What goes: the repairs that are named, all but the last `keep`, or those older than `before_ms`.

    `store`: its survey, or the settings that name it.

    Raises:
        InvalidArgument: no such repair. Refused: one that was named is still needed. NotAStore, StorageError.
    """
    files = surveyed(disk, store)
    every = saved_repairs(disk, files.root)
    aside = [(path, size) for path, size, why in leftovers(disk, files.root) if why == ABANDONED]
    kept: list[tuple[str, str]] = []
    if ids:
        by_path = {os.path.basename(path): (path, size) for path, size in aside}
        aside = [by_path[name] for name in dict.fromkeys(ids) if name in by_path]
        named = (find_repair(disk, files.root, name) for name in ids if name not in by_path)
        chosen = list({saved.id: saved for saved in named}.values())
        for saved in chosen:
            why = _needed(disk, saved)
            if why is not None:
                raise Refused(why[0], path=saved.directory, hint=why[1])
    else:
        whole = [saved for saved in every if saved.state != "pruned"]
        young = {saved.id for saved in whole[max(0, len(whole) - keep) :]} if keep is not None else set()
        if before_ms is not None:
            young |= {saved.id for saved in whole if _time(saved) >= before_ms}
            aside = [(path, size) for path, size in aside if _stamp(os.path.basename(path)) < before_ms]
        chosen = []
        for saved in every:
            why = _needed(disk, saved)
            if saved.id in young:
                kept.append((saved.id, "one of the newest" if keep is not None else "newer than the limit"))
            elif why is not None:
                kept.append((saved.id, why[0]))
            else:
                chosen.append(saved)
    pruned = []
    for number, saved in enumerate(chosen):
        if progress is not None:
            progress(number, len(chosen))
        reason = _why_manifest_stays(files, every, saved)
        left = [path for repair in saved.repairs for path in _going(disk, repair.directory, keep=reason is not None)]
        if saved.state != "pruned" or left:
            taken = sum(disk_bytes(disk, path) for path in left)
            pruned.append(PrunedRepair(saved, taken, _only_here(disk, files, saved), reason))
    return PrunePlan(files.root, tuple(pruned), tuple(aside), tuple(kept))


def prune(disk: Disk, plan: PrunePlan) -> None:
    """Do what the plan says. The caller holds the store's lock. Killed at any point: plan and run it again.

    Raises:
        StorageError: run it again.
    """
    for one in plan.pruned:
        for repair in one.saved.repairs:
            if not disk.exists(os.path.join(repair.directory, PRUNED)):
                disk.write_file_atomically(os.path.join(repair.directory, PRUNED), b"{}")
        disk.step("prune.marked")
        for repair in one.saved.repairs:
            for path in _going(disk, repair.directory, keep=one.keeps_manifest is not None):
                disk.step("prune.remove")
                _remove(disk, path)
            disk.sync_dir(repair.directory)
            if one.keeps_manifest is None:
                disk.remove_linked_dir(repair.directory)
                disk.sync_dir(os.path.dirname(repair.directory))
    for path, _ in plan.abandoned:
        disk.step("prune.abandoned")
        remove_tree(disk, path)
        disk.sync_dir(os.path.dirname(path))


def _going(disk: Disk, directory: str, *, keep: bool) -> Iterator[str]:
    """What goes of a repair's directory, in order: the pieces; then manifest and marks, unless they are kept."""
    present = [entry.name for entry in disk.scandir(directory)]
    telling = [name for name in (MANIFEST, *_TELLING) if name in present]
    for name in present:
        if name not in telling:
            yield os.path.join(directory, name)
    for name in () if keep else telling:
        yield os.path.join(directory, name)


def _remove(disk: Disk, path: str) -> None:
    if disk.is_dir(path):
        remove_tree(disk, path)
    else:
        disk.unlink(path, missing_ok=True)


def _needed(disk: Disk, saved: SavedRepair) -> tuple[str, str | None] | None:
    """Why a repair must stay, and what to run; None when it may go."""
    if saved.state == "unfinished":
        return "the repair was interrupted: it is needed to finish it", "run rstore recover first, or rstore undo"
    if saved.state == "undo interrupted":
        return "the undo of this repair was interrupted", "run rstore undo again"
    runs, unreadable = read_known_runs(disk, saved)
    if saved.state != "pruned" and unreadable is not None:
        return unreadable, None
    if saved.state != "pruned" and any(not run.done for run in runs):
        return "a replay of it was interrupted", "run rstore salvage replay again"
    return None


def _why_manifest_stays(files: StoreFiles, every: Sequence[SavedRepair], saved: SavedRepair) -> str | None:
    start = files.log[0].offset if files.log else 0
    for kind in ("accepted", "bridged", "healed"):
        if any(end > start for _, end in manifest_ranges(saved.repairs, kind)):
            return f"it records which ranges of the log were {kind}"
    last = next((one for one in reversed(every) if one.state != "undone"), None)
    return "it is the last repair" if last is not None and last.id == saved.id else None


def _only_here(disk: Disk, files: StoreFiles, saved: SavedRepair) -> int:
    """Sound records that neither the log has nor a replay has put back."""
    if saved.state == "pruned":
        return 0
    runs, _ = read_known_runs(disk, saved)
    spans = log_spans(saved, missing_copies(disk, saved))
    count = 0
    with SavedLog(disk, spans) as old, ClosedLog(disk, files.log) as log:
        start = spans[0].offset if spans else 0
        for batch, displaced in batches(
            whole_records(disk, old, start, max_message_size=files.config.max_message_size)
        ):
            for i, row in enumerate(batch.rows):
                topic = batch.topic(i).decode("utf-8", "replace")
                count += (
                    not displaced
                    and not any(run.covers(topic, displaced=False) for run in runs)
                    and log.read(batch.offset(i), row.size) != batch.record(i)
                )
    return count


def _time(saved: SavedRepair) -> int:
    """When the repair was made, ms since 1970."""
    text = str(saved.repairs[-1].manifest.get("time", ""))
    try:
        return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")) * 1000
    except ValueError:
        raise CannotRepair(f"a manifest without a time: {text!r}", path=saved.directory) from None


def _stamp(name: str) -> int:
    """When a salvage directory was made, by its name: ms since 1970, 0 when it does not say."""
    try:
        return calendar.timegm(time.strptime(name.partition("-")[0], "%Y%m%dT%H%M%SZ")) * 1000
    except ValueError:
        return 0
