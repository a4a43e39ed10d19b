"""Commands that need more than a store: a copy of it, a repository, a new master. What lies there is made once."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from engine.backup.objects.place import objects_at
from engine.backup.repository import Repository, open_repository
from engine.config import of_store
from engine.files.disk import Disk
from engine.files.faults import FaultyDisk, Killed
from engine.seals.sealing import SealOptions, seal_store
from tests.engine.backup import repositories
from tests.engine.repair.test_rules import SIZES, put
from tests.engine.seals.stores_sealed import segments, write
from tests.rstore_cli.daemons import DaemonThread
from tests.rstore_cli.test_hostile_store import CONF
from tests.support import stores
from tests.support.config import write_config
from tests.support.in_memory import memory

_MASTER = "master"
PLANNED = {
    "heal": (("heal", "--from", "{good}"), "rotten"),
    "heal --from repo:": (("heal", "--from", "repo:{repo}"), "rotten"),
    "promote": (("promote",), "slave"),
    "rewind": (("rewind", "--to", "{master}"), "ahead"),
}
"""Commands with a plan: words, and the method that makes the store."""
UNPLANNED = {
    "seal": (("seal",), "unsealed"),
    "seal --renew": (("seal", "--renew"), "rotten"),
    "scrub --once": (("scrub", "--once"), "rotten"),
    "backup create": (("backup", "create", "--repo", "{other}"), "sealed"),
    "restore": (("restore", "--repo", "{repo}"), "restoring"),
    "restore, queues": (("restore", "--repo", "{repo}"), "restored"),
}
"""The same of commands that ask nobody."""


def store_of(root: Path) -> list[int]:
    """A sound store of two queues with a group; the physical offsets of its messages."""
    places = put(root, 200)
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:20,1:20}}}')
    write_config(root)
    return places


class Elsewhere:
    """Places below a directory.

    Attributes:
        good: a sound, sealed store, whose log all others begin with.
        repo: a repository with a snapshot of it; `other`: one that backups are made into.
    """

    def __init__(self, base: Path) -> None:
        self.good, self.repo, self.other = base / "good", base / "repo", base / "other"
        store_of(self.good)
        (self.good / "rstore.conf").write_text(CONF)
        seal_store(Disk(), of_store(self.good), SealOptions())
        for place in (self.repo, self.other):
            repositories.new(place, None)
        repositories.back_up(self.repository, self.good)
        self._base = base
        self._daemons: DaemonThread | None = None

    @property
    def repository(self) -> Repository:
        """`repo`, opened."""
        return open_repository(objects_at(Disk(), str(self.repo)), lambda: None)

    def make(self, name: str, root: Path) -> None:
        """The store of one of the commands above."""
        _, prepare = {**PLANNED, **UNPLANNED}[name]
        getattr(self, prepare)(root)

    def words(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The words of a command, with the places that they name."""
        return tuple(
            word.replace("{good}", str(self.good))
            .replace("{repo}", str(self.repo))
            .replace("{other}", str(self.other))
            .replace("{master}", self._master() if word == "{master}" else "")
            for word in words
        )

    def close(self) -> None:
        """The master ends."""
        if self._daemons is not None:
            self._daemons.close()

    def _master(self) -> str:
        if self._daemons is None:
            self._daemons = DaemonThread(self._base)
            stores.copy(self.good, self._daemons.store(_MASTER))
            self._address = str(self._daemons.start(_MASTER, **SIZES).broker)
        return self._address

    # --- stores of commands -----------------------------------------------------------------------------------------

    def sealed(self, root: Path) -> None:
        """As `good`."""
        stores.copy(self.good, root)

    def unsealed(self, root: Path) -> None:
        """The same without seals."""
        stores.copy(self.good, root)
        shutil.rmtree(root / "seals")

    def rotten(self, root: Path) -> None:
        """Two sealed segments have other bytes, and the times that they had."""
        stores.copy(self.good, root)
        for path, at in zip(segments(root)[1:3], (200, 2000), strict=True):
            write(path, at, b"\xff\x01\xff")

    def slave(self, root: Path) -> None:
        """A slave's that was killed; a group's offset is beyond its queue."""
        stores.copy(self.good, root)
        (root / "abort").touch()
        (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:2000,1:20}}}')

    def ahead(self, root: Path) -> None:
        """An old master's, which has more than the new one; a group has read some of it."""
        stores.copy(self.good, root)
        put(root, 30, first=200, body=60)
        (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:110,1:20}}}')

    def restoring(self, root: Path) -> None:
        """Killed while its log was restored."""
        self._killed(root, "restore:written")

    def restored(self, root: Path) -> None:
        """Killed after that, before it had queues."""
        self._killed(root, "restore:named")

    def _killed(self, root: Path, step: str) -> None:
        disk = FaultyDisk(None)
        disk.kill_at(step)
        with suppress(Killed):
            repositories.bring_back(self.repository, root, disk=disk)
        assert (root / "restoring.json").exists()


@pytest.fixture(scope="module")
def places() -> Iterator[Elsewhere]:
    """Them, for the tests of a module."""
    with tempfile.TemporaryDirectory(prefix="rstore-elsewhere-", dir=memory()) as base:
        made = Elsewhere(Path(base))
        yield made
        made.close()
