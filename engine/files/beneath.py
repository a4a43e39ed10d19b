"""Where a disk may change something: below directories that were opened once, and through no link below them.

Theory: whoever can write into a store can put a link, or another name of somebody's file, in any place of it, also
between a look and a change. So no change goes by a path: the directory of what changes is opened beneath a *root*, by
openat2 (RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS) or, where the system has no such call, component by component with
O_NOFOLLOW; then the change is made to a name in that directory, which is not followed either. A file that is opened for
writing must be a regular one with one name (`st_nlink`).

A root is what somebody named: the store, directories of its log, the place of what is saved. Links on the way to it
are followed, once. A *folder* is a name in a root that may be a link (`commitlog` on a disk of its own): it is followed
once, too, if root made the link, or the store's owner did and what it leads to is theirs.

Names are changes of the directory that they are in: a link may be renamed, removed and replaced. Reading follows links.

Invariants:
- Below roots nothing outside of them changes, whoever else writes there meanwhile; unless `follow`.
- A path below no root is refused.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
import weakref
from types import ModuleType
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import OutsideStore, from_os_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from engine.files.libc import Libc

FOLLOW_LINKS = "--follow-links"
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_LINK_MET = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EXDEV})
_NO_CALL = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG})
_ROOT = 0
_TRIES = 16
"""How often openat2 is asked again when something was renamed meanwhile (EAGAIN)."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A link that was followed: its path, and where it leads."""

    path: str
    real: str


@dataclass(frozen=True, slots=True)
class _Anchor:
    """A directory that is there (`directory`, links followed; its descriptor), and what is missing below it."""

    directory: str
    descriptor: int | None
    missing: tuple[str, ...] = ()


class At:
    """A name in a directory: what a change is made to. A context manager, which closes the directory.

    Attributes:
        directory: its descriptor; None: `name` is a path.
        name: in the directory.
        strict: links are not followed, and other names of a file count.
        inside: the directory is a root or lies below one: what is made there takes its mode, or that of `model`.
        model: a descriptor of the directory whose mode is taken instead.
    """

    __slots__ = ("_own", "directory", "inside", "model", "name", "strict")

    def __init__(
        self,
        name: str,
        directory: int | None = None,
        *,
        own: bool = False,
        strict: bool = False,
        inside: bool = False,
        model: int | None = None,
    ) -> None:
        self.name = name
        self.directory = directory
        self.strict = strict
        self.inside = inside
        self.model = model
        self._own = own

    def __enter__(self) -> At:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._own and self.directory is not None:
            os.close(self.directory)
            self.directory = None

    @property
    def no_follow(self) -> int:
        """What open(2) is told beside its flags."""
        return os.O_NOFOLLOW if self.strict else 0

    def parent(self) -> os.stat_result:
        """Owner and mode that what is made gets. Raises OSError."""
        if self.model is not None:
            return os.fstat(self.model)
        return os.stat(os.path.dirname(self.name) or os.curdir) if self.directory is None else os.fstat(self.directory)

    def status(self) -> os.stat_result | None:
        """What has the name, None when nothing does; a link itself, where links are not followed. Raises OSError."""
        try:
            return os.stat(self.name, dir_fd=self.directory, follow_symlinks=not self.strict)
        except FileNotFoundError:
            return None


class Roots:
    """Directories below which changes are made, see the module. Thread-safe once they are added.

    Args:
        libc: has openat2.
        follow: links below the roots are followed all the same.

    Attributes:
        followed: the links that lead to folders.
    """

    def __init__(self, libc: Libc, *, follow: bool = False) -> None:
        self._libc = libc
        self._anchors: dict[str, _Anchor] = {}
        self._descriptors: list[int] = []
        self._real = type(os) is ModuleType  # a fake file system has no descriptors of directories
        self._has_call = True
        self._builds: tuple[str, ...] = ()
        self.follow = follow
        self.followed: tuple[Followed, ...] = ()
        # this module's `os` of today: a test's fake file system may stand in its place when this is collected
        weakref.finalize(self, _close, os.close, self._descriptors).atexit = False

    def add(self, path: str) -> None:
        """A directory that somebody named, whether it is there or not. Raises StorageError."""
        path = os.path.abspath(path)
        if path in self._anchors:
            return
        missing: list[str] = []
        there = path
        while not os.path.isdir(there) and there != os.path.dirname(there):
            missing.insert(0, os.path.basename(there))
            there = os.path.dirname(there)
        real = os.path.realpath(there)
        anchor = _Anchor(real, self._opened(real), tuple(missing))
        self._anchors[path] = anchor
        self._anchors.setdefault(os.path.join(real, *missing), anchor)

    def add_folder(self, path: str, owner: int) -> None:
        """A name below a root that may be a link to a directory; nothing when it is none. `owner`: the store's (uid).

        Raises:
            OutsideStore: neither root nor the owner has made it, or the owner did, and it leads to what is not theirs.
            StorageError.
        """
        path = os.path.abspath(path)
        if path in self._anchors or not os.path.islink(path) or not os.path.isdir(path):
            return
        real = os.path.realpath(path)
        maker, theirs = os.lstat(path).st_uid, os.stat(real).st_uid
        if not self.follow and not (maker == _ROOT or (maker == owner and theirs == owner)):
            what = "which is not theirs" if maker == owner else "and neither root nor the store's owner made it"
            raise OutsideStore(
                f"user {maker} made this link to {real}, {what}",
                path=path,
                hint=f"if it is right: chown -h root {shlex.quote(path)}, or run it again with {FOLLOW_LINKS}; else "
                "remove the link",
            )
        anchor = _Anchor(real, self._opened(real))
        self._anchors[path] = anchor
        self._anchors.setdefault(real, anchor)
        self.followed = (*self.followed, Followed(path, real))

    def add_made(self, path: str, target: str) -> None:
        """A link that was just made here: it is followed to where it was made to lead, whatever it is now."""
        real = os.path.realpath(target)
        anchor = _Anchor(real, self._opened(real))
        self._anchors[os.path.abspath(path)] = anchor
        self._anchors.setdefault(real, anchor)

    def add_build(self, path: str) -> None:
        """A directory below a root in which files of that root are built: they get its mode, not this one's."""
        self._builds = (*self._builds, os.path.join(os.path.abspath(path), ""))

    def at(self, path: str) -> At:
        """The place of a path, for a change. Called within `doing`.

        Raises:
            OutsideStore: it is below no root, or behind a link. OSError: its directory can't be opened.
        """
        place = os.path.abspath(path)
        name = os.path.basename(place)
        anchor, rest = self._anchor_of(os.path.dirname(place), name)
        if anchor is None:
            own = self._anchors.get(place)
            if own is None:
                raise OutsideStore("the path is outside of the store and of the directories that were named", path=path)
            # The root itself is made, renamed or removed: its directory is what its name leads to.
            if own.missing:
                anchor, rest = own, own.missing[:-1]
            else:
                anchor, rest = _Anchor(os.path.dirname(own.directory), None), ()
                name = os.path.basename(own.directory)
            return self._place(anchor, rest, name, path, inside=False)
        at = self._place(anchor, rest, name, path, inside=True)
        if self._builds and place.startswith(self._builds):
            at.model = anchor.descriptor
        return at

    def _place(self, anchor: _Anchor, rest: tuple[str, ...], name: str, path: str, *, inside: bool) -> At:
        if self.follow:
            return At(path, inside=inside)
        if not self._real:
            self._demand_plain(anchor.directory, rest)
            return At(path, strict=True, inside=inside)
        if anchor.descriptor is None:
            return At(name, os.open(anchor.directory, _DIRECTORY), own=True, strict=True, inside=inside)
        if not rest:
            return At(name, anchor.descriptor, strict=True, inside=inside)
        return At(name, self._open(anchor, rest), own=True, strict=True, inside=inside)

    def _anchor_of(self, directory: str, name: str) -> tuple[_Anchor | None, tuple[str, ...]]:
        """The root that has this directory, and what lies between; also of a name that is on the way to a root."""
        at, rest = directory, list[str]()
        while True:
            anchor = self._anchors.get(at)
            if anchor is not None:
                return anchor, (*anchor.missing, *reversed(rest))
            above = os.path.dirname(at)
            if above == at:
                break
            rest.append(os.path.basename(at))
            at = above
        place = os.path.join(directory, name, "")
        for path, anchor in self._anchors.items():
            if anchor.missing and path.startswith(place):  # a directory above a root that is not there yet
                missing = len(path[len(place) :].split(os.sep)) + 1
                if missing <= len(anchor.missing):
                    return anchor, anchor.missing[: len(anchor.missing) - missing]
        return None, ()

    def _opened(self, directory: str) -> int | None:
        if not self._real:
            return None
        try:
            descriptor = os.open(directory, _DIRECTORY)
        except OSError as error:
            raise from_os_error(error, "opening the directory", directory) from None
        self._descriptors.append(descriptor)
        return descriptor

    def _open(self, anchor: _Anchor, rest: tuple[str, ...]) -> int:
        """The directory below an anchor. Raises OutsideStore, OSError."""
        assert anchor.descriptor is not None
        try:
            return self._open_beneath(anchor.descriptor, rest)
        except OSError as error:
            if error.errno in _LINK_MET:
                self._demand_plain(anchor.directory, rest)
            raise

    def _open_beneath(self, descriptor: int, rest: tuple[str, ...]) -> int:
        tries = _TRIES if self._has_call else 0
        for _ in range(tries):
            try:
                return self._libc.open_beneath(descriptor, os.sep.join(rest), _DIRECTORY)
            except OSError as error:
                if error.errno in _NO_CALL:
                    self._has_call = False
                    break
                if error.errno != errno.EAGAIN:
                    raise
        at = os.open(rest[0], _DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
        for name in rest[1:]:
            try:
                below = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            finally:
                os.close(at)
            at = below
        return at

    def _demand_plain(self, directory: str, rest: Iterable[str]) -> None:
        """Raise OutsideStore for the first link on the way."""
        for name in rest:
            directory = os.path.join(directory, name)
            if os.path.islink(directory):
                raise behind_link(directory)


def behind_link(path: str) -> OutsideStore:
    """The refusal of a change through a link."""
    return OutsideStore(
        f"the change would go through a link, which leads to {os.path.realpath(path)}",
        path=path,
        hint=f"if you made it: run it again with {FOLLOW_LINKS}; else remove the link",
    )


def demand_one_name(status: os.stat_result, path: str) -> None:
    """Raise OutsideStore for a regular file that has another name, which would change, too."""
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        name, copy = shlex.quote(path), shlex.quote(path + ".copy")
        raise OutsideStore(
            f"the file has {status.st_nlink} hard links, and the change would reach its other names, too "
            f"(device {status.st_dev}, inode {status.st_ino})",
            path=path,
            hint=f"give the store a copy of its own: cp -p {name} {copy} && mv {copy} {name}; or, if you made the "
            f"links, run it again with {FOLLOW_LINKS}",
        )


def _close(close: Callable[[int], None], descriptors: list[int]) -> None:
    for descriptor in descriptors:
        close(descriptor)
