"""Every error that leaves the engine, one tree, with what a command makes of it.

    RStoreError                      code             exit
    ├── InvalidArgument              usage            2     a value that no store can take
    ├── NotFound                     not-found        1     nothing matches what was searched for; nothing is wrong
    │   └── NoRoute                  no-route         1     no name server knows a broker that serves the topic
    ├── StoreLocked                  locked           3     a running process has locked the store
    ├── Refused                      refused          4     data would be lost; nothing was changed
    │   ├── DamageInTheMiddle        damage           4     sound records lie after a damaged range
    │   ├── StoreChanged             changed          4     the store is not as a repair left it
    │   ├── LogMissing               log-missing      4     queues without a commit log
    │   ├── DataIsAbsent             data-absent      4     a link of the store leads to what is not there
    │   ├── OutsideStore             outside          4     a change would reach what lies outside of the store
    │   ├── NewerStore               newer-store      4     a part of RocketMQ 5 that this change does not keep right
    │   ├── WrongKey                 wrong-key        4     the key does not open the backup repository
    │   └── NoSpaceToSave            no-space         4     no space for what is saved and made
    ├── TimeLimitReached             time-box         1     not finished in the time that was given; run it again
    ├── CannotRepair                 cannot-repair    4     damage that this command can't repair
    │   ├── NotAStore                not-a-store      4     the directory holds no store (or another kind of store)
    │   ├── NotARepository           not-a-repository 4     the location holds no backup repository
    │   ├── WrongFileSize            file-size        4     a store file of another length than the setting
    │   └── FormatError              format           4     bytes that their place does not allow
    ├── NotReached                   not-reached      5     a repository does not answer, or can't be read now
    └── StorageError                 io               5     the system refused (permission, I/O error …)
        ├── PeerLost                 peer             5     a broker or name server is not there, or does not answer
        ├── RefusedByBroker          broker           5     a broker or name server refused what it was asked
        ├── NotInstalled         not-installed    5     a Python package that this needs is not there
        ├── NotAFile                 not-a-file       5     a FIFO, socket, device or directory in place of a file
        └── Shortage                 shortage         5     of what comes back: who meets it waits, and tries again
            ├── DiskFull             disk-full        5     no space left on the device
            └── OutOfDescriptors     descriptors      5     no descriptor (or map) is left to open a file with

Below them, declared where they arise (engine.log.results): MessageRefused (usage), StoreClosed and WriteFailed (io).

Each carries where it is (`path`, `offset` in bytes from the start of the file or of the log, as the message says)
and `hint`: what to do next. The text of an error is one line.
"""

from __future__ import annotations

import errno
import os
from typing import Any, ClassVar

from engine.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class NextStep:
    """What to do next about the state of a store.

    Attributes:
        command: what to run, as a shell takes it (it asks before it changes anything); None: rstore can't continue
            before somebody brings or decides something.
        why: what the command does, or what is to be brought.
        keeps: what becomes of the messages then, where that is known.
    """

    command: str | None
    why: str
    keeps: str | None = None

    def __str__(self) -> str:
        what = self.why if self.keeps is None else f"{self.why}; {self.keeps}"
        return what if self.command is None else f"{self.command} ({what})"

    def to_json(self) -> dict[str, str | None]:
        """One object."""
        return {"command": self.command, "why": self.why, "keeps": self.keeps}


class RStoreError(Exception):
    """Base of all errors of the engine.

    Attributes:
        message: what is wrong, one sentence without a full stop.
        path: the file or directory that it is about, if any.
        offset: byte offset in that file, or the physical offset in the log where there is no single file.
        hint: what the operator should know to continue.
        next: what to do next, where the store's state says it; it ends the text's hint.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 5

    def __init__(
        self,
        message: str,
        *,
        path: str | os.PathLike[str] | None = None,
        offset: int | None = None,
        hint: str | None = None,
        next_step: NextStep | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = None if path is None else os.fspath(path)
        self.offset = offset
        self.next = next_step
        if next_step is not None:
            hint = f"next: {next_step}" if hint is None else f"{hint}; next: {next_step}"
        self.hint = hint

    def to_json(self) -> dict[str, Any]:
        """One object: what CLI.md "Exit codes" has of an error."""
        return {
            "code": self.code,
            "message": self.message,
            "path": self.path,
            "offset": self.offset,
            "hint": self.hint,
            "next": None if self.next is None else self.next.to_json(),
        }

    def __str__(self) -> str:
        where = "" if self.path is None else f": {self.path}"
        if self.offset is not None and f"offset {self.offset} " not in self.message:
            where += f" at {self.offset}" if where else f": at {self.offset}"
        return self.message + where + ("" if self.hint is None else f" ({self.hint})")


class InvalidArgument(RStoreError):
    """A value that no store can take: a body over the maximum, a topic of 200 characters, a size of 0."""

    code = "usage"
    exit_code = 2


class NotFound(RStoreError):
    """Nothing is there that matches what was searched for, and nothing is wrong."""

    code = "not-found"
    exit_code = 1


class NoRoute(NotFound):
    """No name server knows a broker that serves this topic."""

    code = "no-route"


class StoreLocked(RStoreError):
    """A live process holds the store's lock."""

    code = "locked"
    exit_code = 3


class Refused(RStoreError):
    """The command would lose data, so it changed nothing."""

    code = "refused"
    exit_code = 4


class DamageInTheMiddle(Refused):
    """Sound records lie after a damaged range of the log: the operator has to choose."""

    code = "damage"


class StoreChanged(Refused):
    """The store is not as the repair left it that should be taken back."""

    code = "changed"


class LogMissing(Refused):
    """Consume queues, but no commit log: an unmounted disk or a wrong path more often than an empty store."""

    code = "log-missing"


class DataIsAbsent(Refused):
    """A link of the store leads to what is not there: a disk that is not mounted more often than lost data."""

    code = "data-absent"


class NewerStore(Refused):
    """A store of RocketMQ 5 with a part that this change does not keep right, or that this command does not read."""

    code = "newer-store"


class WrongKey(Refused):
    """The key does not open the backup repository, or none was given."""

    code = "wrong-key"


class OutsideStore(Refused):
    """A change would reach what lies outside of the store: through a link below it, or another name of a file."""

    code = "outside"


class NoSpaceToSave(Refused):
    """There is no space for what a repair saves first, and for what it makes."""

    code = "no-space"


class TimeLimitReached(RStoreError):
    """The time that was given is over: what was done so far is remembered, and nothing was changed."""

    code = "time-box"
    exit_code = 1


class CannotRepair(RStoreError):
    """Damage that this command can't mend."""

    code = "cannot-repair"
    exit_code = 4


class NotAStore(CannotRepair):
    """The directory holds no store that this engine knows."""

    code = "not-a-store"


class NotARepository(CannotRepair):
    """The location holds no backup repository that this engine knows."""

    code = "not-a-repository"


class WrongFileSize(CannotRepair):
    """A store file's length differs from the setting."""

    code = "file-size"


class FormatError(CannotRepair):
    """Bytes that are not what their place in the store says they are."""

    code = "format"


class NotReached(RStoreError):
    """A backup repository does not answer, or can't be read now: nobody knows whether what lies there is damaged.

    No StorageError: whoever reads a log takes that for damage of what is read, and goes on after it.
    """

    code = "not-reached"


class StorageError(RStoreError):
    """The operating system refused: permissions, I/O errors, missing files."""

    code = "io"
    exit_code = 5


class PeerLost(StorageError):
    """A peer is not there, has gone, or has not answered in time: whether it has done what was asked is not known."""

    code = "peer"


class RefusedByBroker(StorageError):
    """A broker's or name server's answer is a refusal.

    Attributes:
        response: its ResponseCode.
        remark: its words.
        address: whose.
    """

    code = "broker"
    response: int = 0
    remark: str = ""
    address: str = ""

    @classmethod
    def of(cls, response: int, remark: str | None, address: str) -> RefusedByBroker:
        """The error that an answer stands for."""
        words = (remark or "").strip()
        first = words.splitlines()[0] if words else "no reason given"
        error = cls(f"{address} refused the request with code {response}: {first}")
        error.response, error.remark, error.address = response, words, address
        return error


class NotInstalled(StorageError):
    """What was asked for needs a Python package that is not there."""

    code = "not-installed"


class NotAFile(StorageError):
    """What should be a regular file is something else, or a link whose target is not there."""

    code = "not-a-file"


class Shortage(StorageError):
    """Nothing is wrong with the file: the system has none left of something now. A later try may succeed."""

    code = "shortage"


class DiskFull(Shortage):
    """No space left on the device (or over a quota)."""

    code = "disk-full"


class OutOfDescriptors(Shortage):
    """The process (RLIMIT_NOFILE) or the system has no descriptor left to open a file with."""

    code = "descriptors"


MOVE_AWAY = "move it away, then run it again"
"""What to do about what stands in the way."""


def from_os_error(error: OSError, doing: str, path: str | os.PathLike[str], offset: int | None = None) -> StorageError:
    """The typed error for what the system reported while `doing` (a phrase such as "writing")."""
    reason = (error.strerror or str(error)).lower()
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{doing}: {reason}", path=path, offset=offset, hint="free space, then run it again")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        more = "no descriptor is left; allow more open files: ulimit -n, LimitNOFILE= of systemd"
        return OutOfDescriptors(f"{doing}: {reason}", path=path, offset=offset, hint=more)
    hint = None
    if error.errno in (errno.EACCES, errno.EPERM):
        hint = "look at owner and mode of the file and its directory: ls -ld; run rstore as that user"
    elif error.errno in (errno.EISDIR, errno.ENOTDIR):
        hint = MOVE_AWAY
    return StorageError(f"{doing}: {reason}", path=path, offset=offset, hint=hint)
