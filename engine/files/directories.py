"""Names of the system's files: directories, links, renames, deletions, attributes; how names become durable.

Run by root, what is created belongs to the owner of the directory: else the broker could not open its own store again.

Modes: what is made in a store (`beneath`) has the permission bits of the directory that it is made in, a file those for
reading and writing: so a store that its owner alone may read stays so, whatever the umask is. What rstore makes for
itself (salvage, saved progress) is made in directories of mode 0700 (PRIVATE), and so nobody else can read it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import MOVE_AWAY, StorageError
from engine.files.beneath import At, behind_link, demand_one_name
from engine.files.entry import GONE, Entry, entry_of, exists, look
from engine.files.operations import Operation
from engine.files.seam import ROOT, Seam

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.files.sync_later import SyncLater


PRIVATE = 0o700
"""The mode of a directory that rstore makes for itself."""


class Directories(Seam):
    """See the module. A part of `Disk`."""

    def mkdirs(self, path: str, *, later: SyncLater | None = None, mode: int | None = None) -> None:
        """Make a directory and what is missing above it. Nothing when it is there.

        Each new name is durable, or will be with all that is to be synced `later`. `mode`: permission bits of each that
        is made (default: as the module says).
        """
        if self.is_dir(path):
            return
        missing: list[Path] = []
        place = Path(path)
        while not self.exists(str(place)):
            missing.append(place)
            place = place.parent
        for directory in reversed(missing):
            self._make_directory(str(directory), later, mode)
        if not self.is_dir(path):
            raise StorageError("not a directory", path=path, hint=MOVE_AWAY)

    def _make_directory(self, path: str, later: SyncLater | None, mode: int | None) -> None:
        parent = os.path.dirname(path) or os.curdir
        with self._held(path) as at:
            made = False
            try:
                with self.doing(Operation.MAKE_DIRECTORY, path):
                    try:
                        os.mkdir(at.name, 0o777 if mode is None else mode, dir_fd=at.directory)
                    except FileExistsError:
                        if not os.path.isdir(path):
                            raise
                    else:
                        made = True
                        self._settle_directory(at, mode)
                if later is None:
                    self.sync_dir(parent)
                else:
                    later.directory(parent)
            except Exception:
                if made:  # who finds it there takes it for durable
                    self._take_back(at, path, directory=True)
                raise

    def make_link(self, path: str, target: str) -> None:
        """Make `path` a symbolic link to the directory `target`, durably: below it this disk makes changes.

        Raises StorageError when the name is taken.
        """
        with self.doing(Operation.LINK, path), self._at(path) as at:
            os.symlink(target, at.name, dir_fd=at.directory)
            if self._roots is not None:
                self._roots.add_made(path, target)
        self.sync_dir(str(Path(path).parent))

    def behind_link(self, path: str) -> str:
        """What a path leads to, all links followed."""
        with self.doing(Operation.STAT, path):
            return os.path.realpath(path)

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        with self.doing(Operation.SYNC_DIRECTORY, path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                self.fsync(descriptor)
            finally:
                os.close(descriptor)

    def demand_descriptors(self, path: str, count: int) -> None:
        """Raise OutOfDescriptors where a directory can't be opened so often at once."""
        with self.doing(Operation.LIST, path):
            taken: list[int] = []
            try:
                for _ in range(count):
                    taken.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY))
            finally:
                for descriptor in taken:
                    os.close(descriptor)

    def replace(self, source: str, target: str) -> None:
        """Rename, over an existing target; durable after `sync_dir` of both directories."""
        with self.doing(Operation.REPLACE, target, source=source), self._at(source) as old, self._at(target) as new:
            os.replace(old.name, new.name, src_dir_fd=old.directory, dst_dir_fd=new.directory)

    def link(self, target: str, path: str) -> None:
        """Make a symbolic link (it must not be there); its name is durable after `sync_dir`."""
        with self.doing(Operation.CREATE, path), self._at(path) as at:
            os.symlink(target, at.name, dir_fd=at.directory)

    def link_of(self, path: str) -> str:
        """Where a symbolic link leads, as it says it; "" for what is none, or not there."""
        with self.doing(Operation.STAT, path):
            if not os.path.islink(path):
                return ""
            try:
                return os.readlink(path)
            except OSError as error:  # it was replaced, or removed, since
                if error.errno != errno.EINVAL and error.errno not in GONE:
                    raise
                return ""

    def mode(self, path: str) -> int:
        """Permission bits."""
        with self.doing(Operation.STAT, path):
            return stat.S_IMODE(os.stat(path).st_mode)

    def owner(self, path: str) -> int:
        """The user (uid) that it belongs to."""
        with self.doing(Operation.STAT, path):
            return os.stat(path).st_uid

    def set_mode(self, path: str, mode: int) -> None:
        """Set the permission bits. Raises StorageError, OutsideStore."""
        with self.doing(Operation.WRITE, path), self._itself(path) as name:
            os.chmod(name, mode)

    def unlink(self, path: str, *, missing_ok: bool = False) -> None:
        """Remove a file's name, of a link its own; durable after `sync_dir`."""
        if missing_ok and self.look(path) is None:
            return
        with self.doing(Operation.UNLINK, path), self._at(path) as at:
            try:
                os.unlink(at.name, dir_fd=at.directory)
            except FileNotFoundError:
                if not missing_ok:
                    raise

    def remove_dir(self, path: str) -> bool:
        """Remove an empty directory; False when it is absent or not empty (as Apache's queues do on destroy)."""
        with self.doing(Operation.UNLINK, path), self._at(path) as at:
            try:
                os.rmdir(at.name, dir_fd=at.directory)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    return False
                raise
        return True

    def remove_linked_dir(self, path: str) -> None:
        """Remove an empty directory, and the link by which it is reached, if there is one."""
        with self.doing(Operation.UNLINK, path):
            linked = os.path.islink(path)
        if not linked:
            self.remove_dir(path)
        elif self.remove_dir(self.behind_link(path)):
            self.unlink(path)

    def set_modified(self, path: str, mtime_ns: int) -> None:
        """Set a file's last modification (ns since 1970), which retention goes by. Raises StorageError."""
        with self.doing(Operation.WRITE, path), self._itself(path) as name:
            os.utime(name, ns=(mtime_ns, mtime_ns))

    def exists(self, path: str) -> bool:
        """Whether something has this name."""
        with self.doing(Operation.STAT, path):
            return exists(path)

    def nearest(self, path: str) -> str:
        """The path, or the lowest directory above it that is there; a relative one ends at the working directory."""
        while not self.exists(path) and path != os.path.dirname(path):
            path = os.path.dirname(path) or os.curdir
        return path

    def is_dir(self, path: str) -> bool:
        """Whether this is a directory."""
        with self.doing(Operation.STAT, path):
            return os.path.isdir(path)

    def is_mount_point(self, path: str) -> bool:
        """Whether a file system is mounted there."""
        return os.path.ismount(path)

    def may(self, path: str, *, write: bool) -> bool:
        """Whether this process may read (and with `write`, change) it; a directory must be searchable, too."""
        wanted = os.R_OK | (os.W_OK if write else 0) | (os.X_OK if self.is_dir(path) else 0)
        return os.access(path, wanted)

    def is_read_only(self, path: str) -> bool:
        """Whether its file system is mounted read-only."""
        with self.doing(Operation.STAT, path):
            return bool(os.statvfs(path).f_flag & os.ST_RDONLY)

    def stat(self, path: str) -> Entry:
        """One name's size and time; raises StorageError when it is absent."""
        with self.doing(Operation.STAT, path):
            return entry_of(os.path.basename(path), str(Path(path)))

    def look(self, path: str) -> Entry | None:
        """What a name stands for: also a link whose target is not there; None when there is no such name."""
        with self.doing(Operation.STAT, path):
            return look(os.path.basename(path), str(Path(path)))

    def scandir(self, path: str) -> tuple[Entry, ...]:
        """What is in a directory, sorted by name; StorageError when it is absent.

        A name that vanishes meanwhile is left out.
        """
        # Texts, no Path for each: a store of many queues has tens of thousands of names.
        base = path if path == os.path.normpath(path) else str(Path(path))
        with self.doing(Operation.LIST, path):
            names = sorted(os.listdir(base))
        prefix = "" if base == os.curdir else os.path.join(base, "")
        entries: list[Entry] = []
        for name in names:
            place = prefix + name
            with self.doing(Operation.STAT, place):
                entry = look(name, place)
            if entry is not None:
                entries.append(entry)
        return tuple(entries)

    def listdir(self, path: str) -> tuple[str, ...]:
        """The names in a directory, sorted; StorageError when it is absent."""
        with self.doing(Operation.LIST, path):
            return tuple(sorted(place.name for place in Path(path).iterdir()))

    def _held(self, path: str) -> At:
        """The place of what is going to be made, for `_take_back`; to be closed. Raises OutsideStore, StorageError."""
        with self.doing(Operation.OPEN, os.path.dirname(path) or os.curdir):
            return self._at(path)

    def _take_back(self, at: At, path: str, *, directory: bool = False) -> None:
        """Remove the name of what was made, and could not be finished: it would be in the way of the next try.

        Needs no descriptor, as the directory is open since before: there may be none left, and others wait for each.
        """
        with contextlib.suppress(StorageError), self.doing(Operation.UNLINK, path):
            if directory:
                os.rmdir(at.name, dir_fd=at.directory)
            else:
                os.unlink(at.name, dir_fd=at.directory)

    @contextlib.contextmanager
    def _itself(self, path: str) -> Iterator[str]:
        """A name by which the attributes of a file or directory are set: of itself, where links are not followed."""
        with self._at(path) as at:
            if not at.strict or at.directory is None:
                if at.strict and os.path.islink(at.name):
                    raise behind_link(path)
                yield at.name
                return
            descriptor = os.open(at.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at.directory)
            try:
                status = os.fstat(descriptor)
                if stat.S_ISLNK(status.st_mode):
                    raise behind_link(path)
                demand_one_name(status, path)
                yield f"/proc/self/fd/{descriptor}"
            finally:
                os.close(descriptor)

    def _settle_directory(self, at: At, mode: int | None) -> None:
        """Owner and mode of a directory that was just made; by a descriptor of it, as somebody may replace its name."""
        parent = at.parent()
        owner = (parent.st_uid, parent.st_gid) if self._is_for_another(parent) else None
        wanted = mode if mode is not None else parent.st_mode & 0o777 if at.inside else None
        if at.directory is None:
            if owner is not None:
                with contextlib.suppress(PermissionError):
                    os.chown(at.name, *owner)
            return
        if owner is None and wanted is None:
            return
        descriptor = os.open(at.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at.directory)
        try:
            self._settle(descriptor, owner, wanted)
        finally:
            os.close(descriptor)

    def _settle_file(self, at: At, descriptor: int | None, path: str) -> None:
        """Owner and mode of a file that was just made; `descriptor`: None on a fake file system."""
        parent = at.parent()
        owner = (parent.st_uid, parent.st_gid) if self._is_for_another(parent) else None
        if descriptor is None:
            if owner is not None:
                with contextlib.suppress(PermissionError):
                    os.chown(path, *owner)
            return
        self._settle(descriptor, owner, parent.st_mode & 0o666 if at.inside else None)

    @staticmethod
    def _settle(descriptor: int, owner: tuple[int, int] | None, mode: int | None) -> None:
        if owner is not None:
            # Refused by some network file systems; the file is usable then all the same.
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, *owner)
        if mode is not None:
            now = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if now & 0o777 != mode:
                with contextlib.suppress(PermissionError):
                    os.fchmod(descriptor, now & ~0o777 | mode)

    @staticmethod
    def _is_for_another(parent: os.stat_result) -> bool:
        return os.geteuid() == ROOT and (parent.st_uid, parent.st_gid) != (ROOT, ROOT)

    def _behind_link(self, path: str) -> str:
        """What a link to a file leads to; any other path as it is. Raises OutsideStore: links are not followed."""
        with self.doing(Operation.STAT, path):
            if not (os.path.islink(path) and os.path.isfile(path)):
                return path
            if not self.follows:
                raise behind_link(path)
            real = os.path.realpath(path)
        self.admit(os.path.dirname(real))
        return real

    def _copy_owner(self, model: str, descriptor: int | None, path: str) -> None:
        """Give a new file (its descriptor; None on a fake file system) owner and permission bits of another one."""
        with contextlib.suppress(PermissionError):
            try:
                old = os.lstat(model)
            except OSError as error:
                if error.errno in GONE:
                    return
                raise
            if not stat.S_ISREG(old.st_mode):
                return
            target: int | str = path if descriptor is None else descriptor
            if os.geteuid() == ROOT:
                os.chown(target, old.st_uid, old.st_gid)
            os.chmod(target, old.st_mode & 0o777)
