"""Names of the system's files: directories, links, renames, deletions, attributes; how names become durable.

Run by root, what is created belongs to the owner of the directory: else the broker could not open its own store again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import StorageError
from engine.files.entry import Entry, entry_of, exists, look
from engine.files.operations import Operation
from engine.files.seam import ROOT, Seam

if TYPE_CHECKING:
    from engine.files.sync_later import SyncLater


class Directories(Seam):
    """See the module. A part of `Disk`."""

    def mkdirs(self, path: str, *, later: SyncLater | None = None) -> None:
        """Make a directory and what is missing above it. Nothing when it is there.

        Each new name is durable, or will be with all that is to be synced `later`.
        """
        if self.is_dir(path):
            return
        missing: list[Path] = []
        place = Path(path)
        while not self.exists(str(place)):
            missing.append(place)
            place = place.parent
        for directory in reversed(missing):
            with self.doing(Operation.MAKE_DIRECTORY, str(directory)):
                directory.mkdir(exist_ok=True)
                self._give_to_owner(str(directory))
            if later is None:
                self.sync_dir(str(directory.parent))
            else:
                later.directory(str(directory.parent))
        if not self.is_dir(path):
            raise StorageError("not a directory", path=path)

    def make_link(self, path: str, target: str) -> None:
        """Make `path` a symbolic link to `target`, durably. Raises StorageError when the name is taken."""
        with self.doing(Operation.LINK, path):
            os.symlink(target, path)
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

    def replace(self, source: str, target: str) -> None:
        """Rename, over an existing target; durable after `sync_dir` of both directories."""
        with self.doing(Operation.REPLACE, target, source=source):
            Path(source).replace(target)

    def link(self, target: str, path: str) -> None:
        """Make a symbolic link (it must not be there); its name is durable after `sync_dir`."""
        with self.doing(Operation.CREATE, path):
            os.symlink(target, path)

    def link_of(self, path: str) -> str:
        """Where a symbolic link leads, as it says it; "" for what is none, or not there."""
        with self.doing(Operation.STAT, path):
            return os.readlink(path) if os.path.islink(path) else ""

    def mode(self, path: str) -> int:
        """Permission bits."""
        with self.doing(Operation.STAT, path):
            return stat.S_IMODE(os.stat(path).st_mode)

    def set_mode(self, path: str, mode: int) -> None:
        """Set the permission bits. Raises StorageError."""
        with self.doing(Operation.WRITE, path):
            os.chmod(path, mode)

    def unlink(self, path: str, *, missing_ok: bool = False) -> None:
        """Remove a file's name; durable after `sync_dir`."""
        if missing_ok and not self.exists(path):
            return
        with self.doing(Operation.UNLINK, path):
            Path(path).unlink(missing_ok=missing_ok)

    def remove_dir(self, path: str) -> bool:
        """Remove an empty directory; False when it is absent or not empty (as Apache's queues do on destroy)."""
        with self.doing(Operation.UNLINK, path):
            try:
                Path(path).rmdir()
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
        with self.doing(Operation.WRITE, path):
            os.utime(path, ns=(mtime_ns, mtime_ns))

    def exists(self, path: str) -> bool:
        """Whether something has this name."""
        with self.doing(Operation.STAT, path):
            return exists(path)

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

    def _give_to_owner(self, path: str) -> None:
        if os.geteuid() == ROOT:
            owner = Path(path).parent.stat()
            if (owner.st_uid, owner.st_gid) != (ROOT, ROOT):
                # Refused by some network file systems; the file is usable then all the same.
                with contextlib.suppress(PermissionError):
                    os.chown(path, owner.st_uid, owner.st_gid)

    def _behind_link(self, path: str) -> str:
        """What a link to a file leads to; any other path as it is."""
        with self.doing(Operation.STAT, path):
            return os.path.realpath(path) if os.path.islink(path) and os.path.isfile(path) else path

    def _copy_owner(self, model: str, path: str) -> None:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            old = Path(model).stat()
            Path(path).chmod(stat.S_IMODE(old.st_mode))
            if os.geteuid() == ROOT:
                os.chown(path, old.st_uid, old.st_gid)
