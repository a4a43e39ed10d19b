"""Swap what `reindex` has built into the store: the old files go to salvage by renaming, the new ones take their place.

One directory at a time: a queue's extension, its units, the index. A kill can fall between the two renames of one of
them; then the place is empty, what was built still stands in the build directory, and the next run puts it there
first (`finish`). A queue that is missing is no loss either way: `rstore recover` makes it from the log, too.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from engine.files.directories import PRIVATE
from engine.format import names
from engine.inspect import next_step
from engine.inspect.store.repairs import digest, is_below, listing
from engine.inspect.store.survey import survey
from engine.repair.recover.recover import plan_recover
from engine.repair.reindex.reindex import demand_readable, demand_sound
from engine.repair.salvage.finish import finish, finish_swaps, killed_before_reindex, part, parted, settle
from engine.repair.salvage.salvage import Saved, goes, new_directory, write_manifest
from engine.repair.trees import remove_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.config import StoreConfig
    from engine.errors import RStoreError
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.repair.reindex.reindex import ReindexPlan, Scope

BUILD = names.REINDEX_BUILD
"""Where it is built, in the store's directory."""
SWAP = "swap.json"
"""In there once all is built: the directories that are to be swapped in."""
_WHY = "rebuilt from the log"


def build_directory(root: str) -> str:
    """Where in the store it is built."""
    return os.path.join(root, BUILD)


def refusal(
    disk: Disk,
    files: StoreFiles,
    *,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RStoreError | None:
    """Why nothing is swapped into a store: it was not closed, or a repair of another kind was killed.

    A recovery comes first then. Where one without options is refused, too, it is its reason that is reported, with the
    command that is not. For this the log is read as `recover` reads it, by `jobs` threads (None: one a core).

    Raises:
        CannotRepair, StorageError: the store can't be read.
    """
    refused = next_step.not_closed(files.config) if files.abort else killed_before_reindex(disk, files.config)
    if refused is None:
        return None
    first = plan_recover(disk, files, jobs=jobs, progress=progress).refusal
    if first is None or first.next is None or first.next.command is None:
        return refused
    return type(first)(
        first.message, path=first.path, offset=first.offset, hint="nothing was changed", next_step=first.next
    )


def begin(
    disk: Disk,
    files: StoreFiles,
    scope: Scope,
    *,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[str, StoreFiles]:
    """The directory in the store to build in, made empty; a killed swap is finished. The caller holds the store's lock.

    What refuses comes before the first change, but for damage that only reading the whole log finds: where nothing is
    to be finished, that is found while it is built.

    Returns:
        the directory, and the store's files: surveyed anew where a swap was finished.

    Raises:
        CannotRepair, Refused: recover first. DamageInTheMiddle, DiskFull, StorageError.
    """
    refused = refusal(disk, files, jobs=jobs, progress=progress)
    if refused is not None:
        raise refused
    demand_readable(disk, files, scope)
    into = build_directory(files.root)
    is_killed = disk.exists(os.path.join(into, SWAP))
    if is_killed:
        demand_sound(disk, files, scope, jobs=jobs, progress=progress)
    clear(disk, files.root)
    if is_killed:
        files = survey(disk, files.config)
    disk.mkdirs(into, mode=PRIVATE)
    return into, files


def unchanged(disk: Disk, config: StoreConfig) -> None:
    """Nothing differs: settle repairs of config/, and end killed swaps that had done all. The lock is held."""
    settle(disk, config)
    finish_swaps(disk, config)


def clear(disk: Disk, root: str) -> None:
    """Finish a swap that was killed, and remove what was built. The caller holds the store's lock."""
    built = build_directory(root)
    path = os.path.join(built, SWAP)
    if disk.exists(path):
        for place in _planned(disk, path):
            new, old = os.path.join(built, place), os.path.join(root, place)
            if disk.exists(new) and not disk.exists(old):
                _put(disk, new, old)
    remove_tree(disk, built)


def _planned(disk: Disk, path: str) -> list[str]:
    """The directories that were to be swapped in; none when nobody can tell: all is built again then."""
    try:
        places = json.loads(disk.read_file(path))
        parts = (names.CONSUMEQUEUE, names.CONSUMEQUEUE_EXT, names.BATCHCONSUMEQUEUE, names.INDEX)
        return places if all(is_below(place) and place.split(os.sep)[0] in parts for place in places) else []
    except (ValueError, TypeError, RecursionError):
        return []


def swap(disk: Disk, plan: ReindexPlan) -> str:
    """Swap in what differs. The caller holds the store's lock.

    Returns:
        the salvage directory that the old files are in.

    Raises:
        DiskFull, StorageError: run it again.
    """
    root, built = plan.files.root, plan.built
    swapped = places(disk, plan)
    settle(disk, plan.files.config)
    killed = parted(disk, plan.files.config)
    files = listing(disk, plan.files.config)
    directory = new_directory(disk, root, "reindex")
    disk.write_file_atomically(os.path.join(built, SWAP), json.dumps(swapped).encode())
    pieces = [saved for place in swapped for saved in _pieces(disk, root, built, place)]
    write_manifest(disk, directory, "reindex", files, pieces)
    part(disk, plan.files.config, killed)
    disk.step("reindex.planned")
    for place in swapped:
        old, new, aside = (os.path.join(base, place) for base in (root, built, directory))
        if disk.exists(old):
            disk.mkdirs(os.path.dirname(aside), mode=PRIVATE)
            disk.step("reindex.set-aside")
            _put(disk, old, aside)
        if disk.exists(new):
            disk.step("reindex.swap-in")
            _put(disk, new, old)
    disk.step("reindex.swapped")
    remove_tree(disk, built)
    disk.sync_dir(root)
    finish(disk, plan.files.config)
    return directory


def places(disk: Disk, plan: ReindexPlan) -> list[str]:
    """The directories that are swapped, below the store's, in order."""
    swapped = []
    for queue in sorted(plan.queues_changed):
        for kind in (names.CONSUMEQUEUE_EXT, names.CONSUMEQUEUE, names.BATCHCONSUMEQUEUE):
            place = names.queue_directory(kind, *queue)
            if disk.exists(os.path.join(plan.built, place)):
                swapped.append(place)
    return swapped + ([names.INDEX] if plan.index_changed else [])


def _put(disk: Disk, source: str, target: str) -> None:
    disk.mkdirs(os.path.dirname(target))
    disk.replace(source, target)
    disk.sync_dir(os.path.dirname(target))
    disk.sync_dir(os.path.dirname(source))


def _pieces(disk: Disk, root: str, built: str, place: str) -> list[Saved]:
    """For the manifest: old files are removed (they lie in salvage under their own path), new ones created."""
    pieces: list[Saved] = []
    old = os.path.join(root, place)
    for entry in disk.scandir(old) if disk.exists(old) else ():
        if entry.is_file:
            path = f"{place}/{entry.name}"
            saved = Saved("rename", path, 0, entry.size, _WHY, path, digest(disk, entry.path, 0, entry.size))
            pieces.append(goes(disk, entry.path, saved))
    for entry in disk.scandir(os.path.join(built, place)):
        pieces.append(Saved("create", f"{place}/{entry.name}", 0, entry.size, _WHY, None, ""))
    return pieces
