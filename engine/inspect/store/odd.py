"""What lies in a store and is no store file, or stands in the place of one: named, and what may become of it.

There are three kinds. A *stray* (an empty file, a FIFO, a directory where a segment should be) holds no data of
the store: recovery sets it aside in `quarantine/`. What is *absent* (a link whose target is not there) is data on a
disk that is not mounted: nothing is changed before it is there again, or somebody has removed the link. What stands in
the way of recovery itself (a FIFO as `salvage`, a stray that can't be moved) is to be moved by hand, and refused until
it is.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import CannotRepair, DataIsAbsent, NextStep, RStoreError
from engine.files.entry import Entry, FileKind
from engine.files.listing import LOST_FOUND, OddEntry, Oddness, is_lost_found, left_by_rsync
from engine.format import names
from engine.inspect.store.repairs import APPLIED, MANIFEST, PRUNED, REPLAYED, UNDOING, UNDONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.config import StoreConfig
    from engine.files.disk import Disk

SIZE, STRAY, PASSED_OVER, ABSENT = "file-size", "file-stray", "file-ignored", "file-absent"
"""The codes of check and doctor (CHECK.md) for them."""

QUEUE_EMPTY = "queue-empty"
AFTER_GAP = "a queue file without a unit, after a gap"
AFTER_GAP_WORDS = (AFTER_GAP, "a queue's file that holds nothing, behind a gap")
"""What manifests call it, this version's and earlier ones': undo looks for it (undo_names)."""
AHEAD = "a queue file before the first unit of its queue, without a unit of that queue"
WITHOUT_LOG = "a queue file without a unit, of a missing log"

_BY_NAME = {
    Oddness.WRONG_SIZE: SIZE,
    Oddness.MISALIGNED: SIZE,
    Oddness.DUPLICATE: SIZE,
    Oddness.ABSENT: ABSENT,
}
_DIRECTORIES = (names.CONSUMEQUEUE, names.CONSUMEQUEUE_EXT, names.INDEX, names.CONFIG)
_OURS = (names.SALVAGE, names.QUARANTINE, names.SEALS)
_NOTES = (MANIFEST, APPLIED, UNDOING, UNDONE, PRUNED, REPLAYED)


@dataclass(frozen=True, slots=True)
class OddFile:
    """Something in the store that is no store file, or stands in the place of one.

    Attributes:
        path, size: where, and bytes.
        why: what it is.
        movable: a recovery may set it aside without losing data.
        code: the finding that names it.
        hint: what to do by hand; nothing is changed before, unless it is "".
        copied: it lies on another disk than `quarantine/`: its bytes are saved as those of a file that goes.
    """

    path: str
    size: int
    why: str
    movable: bool
    code: str = PASSED_OVER
    hint: str = ""
    copied: bool = False

    @property
    def description(self) -> str:
        """What it is, and what its name tells of where it comes from."""
        return f"{self.why}, left by an interrupted rsync" if left_by_rsync(os.path.basename(self.path)) else self.why

    @property
    def is_lost_found(self) -> bool:
        """The directory that a file system keeps at its top: passed over here, but no broker of Apache's starts."""
        return self.code == PASSED_OVER and os.path.basename(self.path) == LOST_FOUND

    @property
    def error(self) -> RStoreError | None:
        """The error of a change that is refused because of it; None when it is in nobody's way."""
        if self.code == ABSENT:
            return DataIsAbsent(f"data is absent: {self.why}", path=self.path, next_step=NextStep(None, self.hint))
        return CannotRepair(self.why, path=self.path, next_step=NextStep(None, self.hint)) if self.hint else None


def absent(path: str, what: str) -> OddFile:
    """A link whose target is not there; `what` says where it leads."""
    hint = (
        "mount the disk that the link leads to, then run rstore recover; if its data is lost for good, remove the link "
        f"(rm {shlex.quote(path)}), and see what is lost with rstore recover --dry-run"
    )
    return OddFile(path, 0, what, movable=False, code=ABSENT, hint=hint)


def demand_present(odd_files: Iterable[OddFile]) -> None:
    """Raise DataIsAbsent, for what is planned whatever stands in recovery's way."""
    error = first_error(odd_files)
    if isinstance(error, DataIsAbsent):
        raise error


def demand_saved(disk: Disk, root: str) -> None:
    """Raise DataIsAbsent where what a repair saved (`--salvage-dir`) is on a disk that is not mounted.

    For what goes by the repairs themselves: an undo, and what reads, replays or removes what they saved.
    """
    directory = os.path.join(root, names.SALVAGE)
    itself = disk.look(directory)  # where a full disk took no directory any more, it is the link
    below = disk.scandir(directory) if disk.is_dir(directory) else ()
    for entry in below if itself is None else (itself, *below):
        if entry.kind is FileKind.ABSENT:
            hint = (
                "mount the disk that the link leads to, then run this again; if that salvage is lost for good, "
                f"remove the link (rm {shlex.quote(entry.path)}): that repair can't be undone then"
            )
            raise DataIsAbsent(
                f"the salvage of a repair is absent: {entry.what}", path=entry.path, next_step=NextStep(None, hint)
            )


def instead(entry: Entry, wanted: FileKind) -> OddFile:
    """Something that stands in the place of a file or directory of the store: a stray, or what is absent."""
    if entry.kind is FileKind.ABSENT:
        return absent(entry.path, entry.what)
    return OddFile(entry.path, entry.size, f"{entry.what} instead of {wanted.value}", movable=True, code=STRAY)


def listed(odd: OddEntry, *, movable: bool) -> OddFile:
    """What a listing of segments found; `movable`: unless its data is absent."""
    if odd.why is Oddness.ABSENT:
        return absent(odd.path, odd.what)
    why = f"{odd.what}, not a file" if odd.why is Oddness.NOT_A_FILE else odd.why.value
    return OddFile(odd.path, odd.size, why, movable=movable, code=_BY_NAME.get(odd.why, STRAY))


def first_error(odd_files: Iterable[OddFile]) -> RStoreError | None:
    """Why nothing may be changed: what is absent first, then what stands in the way."""
    errors = [error for odd in odd_files if (error := odd.error) is not None]
    return min(errors, key=lambda error: not isinstance(error, DataIsAbsent), default=None)


def demand_movable(odd_files: Iterable[OddFile]) -> None:
    """Raise `first_error`, for a change that plans without recovery."""
    error = first_error(odd_files)
    if error is not None:
        raise error


def _lost_found(disk: Disk, directory: str) -> Iterator[OddFile]:
    """lost+found in a directory of the log: a file system's own, or a stray that stops Apache's broker."""
    top = os.path.join(directory, LOST_FOUND)
    if disk.is_dir(top):
        if disk.is_mount_point(directory):
            yield OddFile(top, 0, "a directory of the mounted file system itself", movable=False)
        else:
            yield OddFile(top, 0, Oddness.NOT_A_FILE.value, movable=True, code=STRAY)


def in_places(disk: Disk, config: StoreConfig, root: str, entries: Iterable[Entry]) -> Iterator[OddFile]:
    """What stands in the places of a store outside of log, queues and index, and in that of their directories.

    Args:
        disk: how files are reached.
        config: the store's settings.
        root: the store's directory, and
        entries: what is in it.
    """
    there = {entry.name: entry for entry in entries}
    built = there.get(names.REINDEX_BUILD)
    if built is not None and built.is_directory:
        yield OddFile(built.path, 0, "files of an interrupted reindex: the next reindex removes them", movable=False)
    for directory in config.log_directories:
        entry = disk.look(directory)
        if entry is not None and not entry.is_directory:
            yield instead(entry, FileKind.DIRECTORY)
        yield from _lost_found(disk, directory)
    for name in (*_DIRECTORIES, *_OURS):
        entry = there.get(name)
        if entry is not None and not entry.is_directory:
            odd = instead(entry, FileKind.DIRECTORY)
            yield _by_hand(odd, "move it out of the store") if name in _OURS else odd
    for name in (names.CHECKPOINT, names.ABORT, names.LOCK):
        entry = there.get(name)
        if entry is None or entry.is_file:
            continue
        if name == names.ABORT and entry.kind is FileKind.ABSENT:  # a mark: there is no data in it
            yield OddFile(entry.path, 0, entry.what, movable=True, code=STRAY)
        elif name == names.LOCK:  # recovery holds it
            yield _by_hand(instead(entry, FileKind.FILE), "move it out of the store")
        else:
            yield instead(entry, FileKind.FILE)
    for name, below in ((names.CONFIG, _odd_config), (names.SALVAGE, _odd_notes)):
        entry = there.get(name)
        if entry is not None and entry.is_directory:
            yield from below(disk, entry.path)


def moved_by_hand(disk: Disk, root: str, odd: OddFile) -> OddFile:
    """A stray as recovery sets it aside: moved; or on another disk than `quarantine/` saved with what is removed.

    What is no file is moved to no other disk: its hint says that it is to be moved by hand.
    """
    if not odd.movable:
        return odd
    if disk.is_mount_point(odd.path):
        return _by_hand(replace(odd, why=f"{odd.why}, where a disk is mounted"), "mount that disk elsewhere")
    if disk.device(os.path.dirname(odd.path)) == disk.device(root):
        return odd
    entry = disk.look(odd.path)
    if entry is not None and entry.is_file and not disk.link_of(odd.path):
        return replace(odd, copied=True)
    return _by_hand(odd, "move it out of the store (it is on another disk than quarantine/)")


def _by_hand(odd: OddFile, what: str) -> OddFile:
    if odd.code == ABSENT:
        return odd
    return replace(odd, movable=False, hint=f"{what}, then run rstore recover")


def _odd_config(disk: Disk, directory: str) -> Iterator[OddFile]:
    for entry in disk.scandir(directory):
        named = entry.name.endswith((".json", ".json.bak")) and not entry.name.startswith(".")
        if (
            not entry.is_file
            and not is_lost_found(entry)
            and (named or entry.kind not in (FileKind.DIRECTORY, FileKind.ABSENT))
        ):
            yield instead(entry, FileKind.FILE)


def _odd_notes(disk: Disk, directory: str) -> Iterator[OddFile]:
    for repair in disk.scandir(directory):
        if repair.kind is FileKind.ABSENT:
            yield _saved_elsewhere(disk, directory, repair)
        elif not repair.is_directory:
            yield OddFile(
                repair.path,
                repair.size,
                f"{repair.what} in salvage/, where only the directories of repairs belong",
                movable=False,
            )
        elif not is_lost_found(repair):
            for name in _NOTES:
                entry = disk.look(os.path.join(repair.path, name))
                if entry is not None and not entry.is_file:
                    odd = instead(entry, FileKind.FILE)
                    # Set aside, it would be a note that was never written, and say something else.
                    yield odd if odd.code == ABSENT else replace(odd, movable=False, code=PASSED_OVER)


def _saved_elsewhere(disk: Disk, directory: str, repair: Entry) -> OddFile:
    """What a repair saved on a disk that is not mounted: the store needs it only while the repair may be unfinished.

    The last that recover and truncate write is the checkpoint: one that is older than the repair's link tells that the
    repair was killed before (or taken back: what the store was then is on that disk, too).
    """
    checkpoint = disk.look(os.path.join(os.path.dirname(directory), names.CHECKPOINT))
    if checkpoint is None or checkpoint.mtime_ns < repair.mtime_ns:
        return absent(repair.path, f"{repair.what}: the repair that saved there may be unfinished")
    return OddFile(
        repair.path, 0, f"{repair.what}: the salvage of a repair, which undo and salvage need", movable=False
    )
