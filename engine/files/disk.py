"""The one narrow seam between the engine and the system's files.

Theory: every call that the engine makes on files, directories and the clock goes through a `Disk`. Each runs
within `doing(...)`, which turns what the system reports into engine.errors (with path and offset); a subclass
that overrides `doing` and `step` can refuse, count, record or kill at any of them (faults.py).

Two kinds of segment (segment.py): the map, and the channel where the file system can't map or can't allocate,
or where `Disk(mapped=False)` asks for it. Readers of closed stores use `open_reader` (preadv): a bad sector
is a StorageError with its offset there, while through a map it is a SIGBUS.

Invariants:
- A segment that was created has blocks for every byte, or is of the channel kind; a creation that fails
  leaves no file.
- A file that replaces another is complete and durable before it takes the name (`write_file_atomically`).
- Run by root, what is created belongs to the owner of the directory: else the broker could not open its own
  store again.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from engine.errors import NotAFile, StorageError
from engine.files.entry import Entry, FileKind, entry_of, exists, kind_of, look
from engine.files.libc import Libc
from engine.files.operations import Doing, Operation
from engine.files.raw_file import Bytes, RawFile
from engine.files.segment import ChannelSegment, MapSegment, Segment
from engine.files.written import blocks

if TYPE_CHECKING:
    from engine.files.sync_later import SyncLater

LARGEST_WHOLE = 256 << 20
"""No file that is read whole has more bytes: configuration, notes of a repair, a store's settings."""

ROOT = 0
NOBODYS_BLOCKS = 4096
"""Blocks that ext4 gives to nobody's data, at most (ext4_calculate_resv_clusters)."""


@dataclass(frozen=True, slots=True)
class Usage:
    """A file system's room, in bytes: all of it, used, and what an ordinary user may still take."""

    total: int
    used: int
    usable: int


class Disk:
    """The system's files. Thread-safe; holds no state but the kind of segment that it prefers.

    Args:
        mapped: map segments into memory where the file system can; False: channel only.

    Attributes:
        concurrent: whether changes that don't depend on each other may be made by several threads at once; False where
            each run must make the same ones in the same order.
    """

    def __init__(self, *, mapped: bool = True) -> None:
        self.mapped = mapped
        self.libc = Libc()
        self.concurrent = True

    # --- the seam ---------------------------------------------------------------------------------------------------

    def doing(
        self,
        operation: Operation,
        path: str,
        offset: int | None = None,
        length: int = 0,
        source: str | None = None,
    ) -> Doing:
        """The context in which one call runs; see operations.Doing."""
        return Doing(operation, path, offset, length, source)

    def step(self, name: str) -> None:
        """A named point in a change, where a test or drill may end the process. Does nothing here."""

    def fsync(self, descriptor: int) -> None:
        """fsync(2): called within `doing`, which turns an OSError into ours."""
        os.fsync(descriptor)

    def now_ms(self) -> int:
        """The clock, ms since 1970."""
        return time.time_ns() // 1_000_000

    def sleep_ms(self, ms: float) -> None:
        """Wait."""
        time.sleep(ms / 1000)

    # --- segments and files -----------------------------------------------------------------------------------------

    def open_segment(
        self,
        path: str,
        size: int,
        *,
        create: bool = False,
        writable: bool = True,
        mapped: bool | None = None,
        blocks: int | None = None,
    ) -> Segment:
        """Open a file of `size` bytes, or create it (it must not be there) allocated, zeroed and durable.

        `blocks`: bytes at the front of a new file that get blocks (default: all; the rest must be allocated before it
        is written through a map). `mapped` overrides the disk's preference. An existing file is opened as it is,
        whatever its blocks: allocate before writing through a map. Raises DiskFull, StorageError (also when an
        existing file is shorter than `size`, which a map would answer with SIGBUS).
        """
        wanted = self.mapped if mapped is None else mapped
        if create:
            return self._create_segment(path, size, size if blocks is None else min(blocks, size), mapped=wanted)
        file = self.open_raw(path, writable=writable)
        try:
            length = file.size()
            if length < size:
                raise StorageError(f"the file has {length} bytes instead of {size}", path=path)
            return self._as_segment(file, size, writable=writable, mapped=wanted)
        except BaseException:
            file.close()
            raise

    def open_raw(self, path: str, *, writable: bool = False, create: bool = False, new: bool = False) -> RawFile:
        """Open a file by position. `create`: make it when absent; `new`: it must not be there yet.

        Never waits. Raises NotAFile for what is no regular file; StorageError, DiskFull.
        """
        operation = Operation.CREATE if create or new else Operation.OPEN
        with self.doing(operation, path):
            absent = new or (create and not exists(path))
            mode = "x+b" if absent else "r+b" if writable else "rb"
            try:
                # RawFile closes it, and there may be thousands.
                file = open(path, mode, buffering=0, opener=_open_at_once)  # noqa: SIM115
            except OSError as error:
                found = look(os.path.basename(path), path)
                if new or found is None or found.is_file:
                    raise
                raise _no_file(operation, found) from error
            kind = kind_of(os.fstat(file.fileno()).st_mode)
            if kind is not FileKind.FILE:
                file.close()
                raise _no_file(operation, Entry(os.path.basename(path), path, kind, 0, 0))
            if absent:
                self._give_to_owner(path)
        return RawFile(self, path, cast("io.RawIOBase", file))

    def open_reader(self, path: str) -> RawFile:
        """Open a file for positional reading (`size`, `read`, `read_into`, `next_data`), safe on damaged disks."""
        return self.open_raw(path)

    def read_file(self, path: str, limit: int | None = None) -> bytes:
        """A small file whole, or its first `limit` bytes. Raises StorageError for one of more than LARGEST_WHOLE."""
        file = self.open_raw(path)
        try:
            size = file.size()
            if limit is None and size > LARGEST_WHOLE:
                raise StorageError(f"the file has {size} bytes, more than {LARGEST_WHOLE}", path=path)
            return bytes(file.read(0, size if limit is None else min(size, limit)))
        finally:
            file.close()

    def write_file(self, path: str, data: Bytes) -> None:
        """Write a file in place (made when absent), cut to the data's length, synced; its name: `sync_dir`."""
        file = self.open_raw(path, writable=True, create=True)
        try:
            file.write(0, data)
            file.set_size(len(data))
            file.sync(0, len(data))
        finally:
            file.close()

    def write_file_atomically(self, path: str, data: Bytes) -> None:
        """Give `path` new content at one stroke: after a crash it holds the old bytes or the new ones, whole.

        By way of `<path>.tmp`, which is gone when it fails. Owner and mode of an existing file are kept; a link stays
        one: what it leads to is replaced.
        """
        path = self._behind_link(path)
        temporary = path + ".tmp"
        try:
            self.unlink(temporary, missing_ok=True)
            file = self.open_raw(temporary, new=True)
            try:
                file.write(0, data)
                self._copy_owner(path, temporary)
                self.step("write-atomically:written")
                file.sync(0, len(data))
            finally:
                file.close()
            self.step("write-atomically:synced")
            self.replace(temporary, path)
        except Exception:
            with contextlib.suppress(StorageError):
                self.unlink(temporary, missing_ok=True)
            raise
        self.step("write-atomically:replaced")
        self.sync_dir(str(Path(path).parent))

    def copy_file(self, source: str, target: str, *, offset: int = 0, length: int | None = None) -> int:
        """Copy a stretch (default: all) of `source` into the new file `target`; holes and blocks of zeros become holes.

        Durable with its name when it returns; nothing stays behind when it fails. Returns the length in bytes.
        Raises StorageError when `target` is there already.
        """
        reader = self.open_raw(source)
        try:
            end = reader.size() if length is None else min(reader.size(), offset + length)
            writer = self.open_raw(target, new=True)
            try:
                for place, chunk in blocks(reader, offset, end, shift=-offset):
                    writer.write(place - offset, chunk)
                size = max(0, end - offset)
                writer.set_size(size)
                writer.sync(0, size)
            except Exception:
                writer.close()
                self.unlink(target, missing_ok=True)
                raise
            writer.close()
        finally:
            reader.close()
        self.sync_dir(str(Path(target).parent))
        return size

    def copy_range(self, source: str, source_offset: int, length: int, target: str, target_offset: int) -> None:
        """Overwrite `length` bytes of the existing file `target` with those of `source`; synced.

        Holes and zeros of `source` are made zeros in `target`, where it holds something else: its holes stay. A target
        that ends before them becomes as long.

        Raises StorageError when `source` has fewer bytes there.
        """
        reader = self.open_raw(source)
        try:
            writer = self.open_raw(target, writable=True)
            try:
                end = source_offset + length
                if reader.size() < end:
                    raise StorageError("the file ends too soon", path=source, offset=reader.size())
                shift = target_offset - source_offset
                at = source_offset
                for place, chunk in blocks(reader, source_offset, end, shift=shift):
                    self._zero(writer, at + shift, place + shift)
                    writer.write(place + shift, chunk)
                    at = place + len(chunk)
                self._zero(writer, at + shift, end + shift)
                if writer.size() < end + shift:
                    writer.set_size(end + shift)
                writer.sync(target_offset, target_offset + length)
            finally:
                writer.close()
        finally:
            reader.close()

    # --- names ------------------------------------------------------------------------------------------------------

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

    def can_sync_file_system(self, path: str) -> bool:
        """Whether `sync_file_system` works for this file."""
        file = self.open_raw(path)
        try:
            descriptor = file.descriptor
            return descriptor is not None and self.libc.vouches_by_syncfs(descriptor)
        finally:
            file.close()

    def sync_file_system(self, path: str) -> None:
        """Make everything durable on the file system of this file: called within `doing`, for each file in question."""
        descriptor = _open_at_once(path, os.O_RDONLY)
        try:
            self.libc.syncfs(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, source: str, target: str) -> None:
        """Rename, over an existing target; durable after `sync_dir` of both directories."""
        with self.doing(Operation.REPLACE, target, source=source):
            Path(source).replace(target)

    def move(self, source: str, target: str) -> None:
        """Rename; a small file also to another file system, by a copy. Raises StorageError."""
        try:
            self.replace(source, target)
        except StorageError:
            found = self.look(source)
            if found is None or not found.is_file or found.size > LARGEST_WHOLE or self.link_of(source):
                raise
            self.copy_file(source, target)
            self.unlink(source)

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
            found = sorted(os.listdir(base))
        prefix = "" if base == os.curdir else os.path.join(base, "")
        entries: list[Entry] = []
        for name in found:
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

    # --- room -------------------------------------------------------------------------------------------------------

    def usage(self, path: str) -> Usage:
        """The room of the file system that holds `path`. Root's reserve is neither used nor usable."""
        with self.doing(Operation.STAT, path):
            total, used, usable = shutil.disk_usage(path)
        return Usage(total, used, usable)

    def writable(self, path: str) -> int:
        """Bytes that this process may still write where `path` is: root gets what ext4 keeps back for it, too.

        Other file systems count as free what is nobody's reserve (btrfs). Source: ext4_has_free_clusters of Linux.
        """
        usage = self.usage(path)
        if os.geteuid() != ROOT or not self.libc.is_ext(path) or not _is_root_everywhere():
            return usage.usable
        with self.doing(Operation.STAT, path):
            kept = NOBODYS_BLOCKS * os.statvfs(path).f_bsize
        return max(usage.usable, usage.total - usage.used - kept)

    def device(self, path: str) -> int:
        """The number of the file system that holds `path`."""
        with self.doing(Operation.STAT, path):
            return Path(path).stat().st_dev

    def blocks(self, path: str) -> int:
        """Bytes of the blocks that a file has, those that were reserved and not yet written among them."""
        with self.doing(Operation.STAT, path):
            return Path(path).stat().st_blocks * 512

    def disk_used_ratio(self, path: str) -> float:
        """Used ÷ (used + usable), rounded up to a whole per cent (Apache UtilAll.getDiskPartitionSpaceUsedPercent).

        Returns −1.0 for a path that is not there, as Apache does.
        """
        if not self.exists(path):
            return -1.0
        usage = self.usage(path)
        entire = usage.used + usage.usable
        return -1.0 if entire <= 0 else -(-usage.used * 100 // entire) / 100

    # --- inside -----------------------------------------------------------------------------------------------------

    def _create_segment(self, path: str, size: int, blocks: int, *, mapped: bool) -> Segment:
        file = self.open_raw(path, new=True)
        try:
            self.step("create-segment:named")
            file.set_size(size)
            allocated = file.allocate(0, blocks)
            self.step("create-segment:allocated")
            file.sync(0, size)
            self.sync_dir(str(Path(path).parent))
            return self._as_segment(file, size, writable=True, mapped=mapped and allocated)
        except Exception:
            file.close()
            self.unlink(path, missing_ok=True)
            raise

    def _as_segment(self, file: RawFile, size: int, *, writable: bool, mapped: bool) -> Segment:
        if mapped and size > 0 and file.descriptor is not None:
            with self.doing(Operation.MAP, file.path, 0, size):
                try:
                    return MapSegment(self, file, size, writable=writable)
                except OSError as error:
                    if error.errno not in (errno.ENODEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EACCES, errno.ENOMEM):
                        raise
        return ChannelSegment(self, file, size)

    def _zero(self, file: RawFile, start: int, end: int) -> None:
        """Make [start, end) zeros: what is so already is left alone."""
        for place, some in blocks(file, start, end):
            file.write(place, bytes(len(some)))

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


def _is_root_everywhere() -> bool:
    """Whether user 0 is root for the file systems, too, and not only in a user namespace (user_namespaces(7))."""
    try:
        first, outside, count = map(int, Path("/proc/self/uid_map").read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return False
    return (first, outside, count) == (ROOT, ROOT, (1 << 32) - 1)


def _no_file(operation: Operation, found: Entry) -> NotAFile:
    absent = found.kind is FileKind.ABSENT
    return NotAFile(
        f"{operation.value}: {found.what}" + ("" if absent else ", no file"),
        path=found.path,
        hint="mount the disk that it leads to" if absent else "move it out of the store, then run it again",
    )


def _open_at_once(path: str, flags: int) -> int:
    """open(2) that doesn't wait for somebody at the other end of a FIFO, nor takes a terminal."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o666)


Reader = RawFile
"""What `Disk.open_reader` gives."""
