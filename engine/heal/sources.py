"""Where sound copies of damaged pieces are looked for: other stores, snapshots in repositories. Read, never written.

A source may hold several copies of one place: each snapshot of a repository is one, as the newest may have been made of
a log that was damaged already. Nothing that a copy says is believed: engine.heal.proof proves its bytes.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from engine.backup.log import RepositoryLog
from engine.config import apache_key, of_store
from engine.errors import InvalidArgument, NotFound, RStoreError
from engine.inspect.store.layout import arranged, layout_of
from engine.inspect.store.survey import survey
from engine.log.source import ClosedLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.backup.manifest import Snapshot
    from engine.backup.repository import Repository, SnapshotName
    from engine.files.disk import Disk
    from engine.log.source import LogSource

MOST_COPIES = 32
"""Different copies of one segment that are looked at in a repository, the newest first."""
_LOGS_KEPT = 4
"""Snapshots whose logs are held open: each keeps some pieces in memory."""


class HealCopy(Protocol):
    """One copy of the log."""

    @property
    def name(self) -> str:
        """How messages name it."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from a physical offset on; fewer where the copy ends or lacks what follows.

        Raises:
            RStoreError: it can't be read there.
        """
        ...


class HealSource(Protocol):
    """What `--from` names."""

    @property
    def name(self) -> str:
        """How messages name it."""
        ...

    @property
    def segment_size(self) -> int | None:
        """Bytes of its segments (mappedFileSizeCommitLog); None: it does not tell."""
        ...

    def copies(self, offset: int) -> Iterable[HealCopy]:
        """The different copies of the segment that a physical offset lies in; none where it has none.

        Raises:
            RStoreError: it can't be read.
        """
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


class LogCopy:
    """A copy that is read as the scanner reads a log."""

    def __init__(self, name: str, log: LogSource) -> None:
        self._name = name
        self._log = log

    @property
    def name(self) -> str:
        """See HealCopy."""
        return self._name

    def read(self, offset: int, length: int) -> bytes:
        """See HealCopy."""
        out = bytearray()
        while len(out) < length:
            some = self._log.read(offset + len(out), length - len(out))
            if not len(some):
                break
            out += some
        return bytes(out)


class StoreSource:
    """The log of another store, closed or open: its lock is not taken.

    Args:
        disk: how files are reached.
        root: the store's directory.
        healed: the directory of the store that is healed.

    Raises:
        InvalidArgument: it is that store. NotAStore, StorageError.
    """

    def __init__(self, disk: Disk, root: str, healed: str) -> None:
        if os.path.realpath(root) == os.path.realpath(healed):
            raise InvalidArgument("--from names the store that is to be healed", path=root)
        files = survey(disk, of_store(Path(root)))
        files = arranged(files, layout_of(disk, files))
        self.name = root
        self.segment_size: int | None = files.config.mapped_file_size_commit_log
        self._log = ClosedLog(disk, files.log)

    def copies(self, offset: int) -> Iterator[HealCopy]:
        """See HealSource."""
        if self._log.segment_at(offset) is not None:
            yield LogCopy(self.name, self._log)

    def close(self) -> None:
        """See HealSource."""
        self._log.close()


class RepositorySource:
    """The snapshots of a repository, newest first.

    Args:
        repository: open.
        store: only the snapshots of the store that backups call so; None: of all. What is another store's is refused
            by its bytes.

    Raises:
        NotFound: it has none. StorageError.
    """

    def __init__(self, repository: Repository, store: str | None = None) -> None:
        self.name = repository.where
        self._repository = repository
        self._snapshots: list[tuple[SnapshotName, Snapshot]] = []
        self.unreadable: list[str] = []
        for name, snapshot in repository.each_there():
            if isinstance(snapshot, RStoreError):
                self.unreadable.append(f"snapshot {name.short}: {snapshot.message}")
            elif store is None or snapshot.store == store:
                self._snapshots.append((name, snapshot))
        if not self._snapshots:
            what = "no snapshot" if store is None else f"no snapshot of {store}"
            raise NotFound(f"the repository has {what}", path=self.name, hint="; ".join(self.unreadable) or None)
        self._snapshots.sort(key=lambda one: one[1].finished, reverse=True)
        self.segment_size = self._snapshots[0][1].sizes.get(apache_key("mapped_file_size_commit_log"))
        self._logs: OrderedDict[str, RepositoryLog] = OrderedDict()

    def copies(self, offset: int) -> Iterator[HealCopy]:
        """See HealSource."""
        seen: set[str] = set()
        for name, snapshot in self._snapshots:
            ref = next((one for one in snapshot.segments if one.offset <= offset < one.offset + one.size), None)
            if ref is None or ref.pieces in seen:
                continue
            seen.add(ref.pieces)
            yield LogCopy(f"{self.name}, snapshot {name.short}", self._log_of(name, snapshot))
            if len(seen) >= MOST_COPIES:
                return

    def close(self) -> None:
        """See HealSource."""
        self._logs.clear()

    def _log_of(self, name: SnapshotName, snapshot: Snapshot) -> RepositoryLog:
        key = name.short
        log = self._logs.pop(key, None) or RepositoryLog(self._repository, snapshot)
        self._logs[key] = log
        while len(self._logs) > _LOGS_KEPT:
            self._logs.popitem(last=False)
        return log
