"""Which repository a command works in, and the key that opens it."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.dataclass import dataclass
from engine.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.backup.archive.job import ArchiveAccess
    from engine.backup.archive.reading import ArchivedStore
    from engine.backup.repository import Repository
    from engine.config import StoreConfig
    from engine.log.source import SegmentedLog
    from engine.read_store import ReadStore

Repo = Annotated[
    str | None,
    typer.Option(
        "--repo",
        metavar="LOCATION",
        envvar="RSTORE_REPO",
        show_envvar=True,
        help="The repository: a directory, or s3://NAME/PREFIX, gs://…, az://….",
    ),
]
KeyFile = Annotated[
    Path | None, typer.Option("--key-file", metavar="FILE", help="File with the key of the repository.")
]
KeyCommand = Annotated[
    str | None,
    typer.Option("--key-command", metavar="COMMAND", help="Program that prints the key, with its arguments."),
]

Archive = Annotated[
    str | None,
    typer.Option(
        "--archive",
        metavar="LOCATION",
        envvar="RSTORE_ARCHIVE",
        show_envvar=True,
        help="The repository that has the store's archive.",
    ),
]
ArchiveName = Annotated[
    str | None,
    typer.Option("--archive-name", metavar="NAME", help="Name of the store in that repository (default: as noted)."),
]


def location_of(repo: str | None) -> str:
    """The location that was given. Raises InvalidArgument: none was."""
    if not repo:
        raise InvalidArgument("a repository is required", hint="--repo LOCATION, or RSTORE_REPO in the environment")
    return repo


def secret_of(key_file: Path | None, key_command: str | None) -> bytes | None:
    """The key: of the file, else of the program, else of RSTORE_REPO_KEY; None: none is given.

    Raises:
        InvalidArgument: both are given, or it is too short. StorageError: it can't be read.
    """
    from engine.backup.secret import KeySource

    return KeySource(None if key_file is None else str(key_file), key_command).secret()


def open_repo(repo: str | None, key_file: Path | None, key_command: str | None) -> Repository:
    """The repository, open. Raises as `open_repository`, InvalidArgument, StorageError."""
    from engine.backup.objects.place import objects_at
    from engine.backup.repository import open_repository
    from engine.files.disk import Disk

    return open_repository(objects_at(Disk(), location_of(repo)), lambda: secret_of(key_file, key_command))


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """The options of a command that reads through to an archive, as they were typed."""

    location: str | None
    name: str | None
    key_file: Path | None
    key_command: str | None

    @property
    def words(self) -> tuple[str, ...]:
        """The same for the command that continues; nothing where no archive is read."""
        if not self.location:
            return ()
        pairs = {
            "--archive": self.location,
            "--archive-name": self.name,
            "--key-file": self.key_file,
            "--key-command": self.key_command,
        }
        return tuple(word for name, value in pairs.items() if value is not None for word in (name, str(value)))

    def demand_archive(self) -> None:
        """Raises InvalidArgument: the others were given without --archive."""
        if not self.location and (self.name, self.key_file, self.key_command) != (None, None, None):
            raise InvalidArgument("--archive-name, --key-file and --key-command require --archive")

    def access(self) -> ArchiveAccess | None:
        """What a daemon opens the archive with, again and again; None: there is none. The key is looked for now.

        Raises:
            InvalidArgument: options without --archive, both of the key's, no such place. StorageError: no key there.
        """
        from engine.backup.archive.job import ArchiveAccess
        from engine.backup.objects.place import objects_at
        from engine.files.disk import Disk

        self.demand_archive()
        if not self.location:
            return None
        objects_at(Disk(), self.location)
        secret_of(self.key_file, self.key_command)
        return ArchiveAccess(
            self.location, self.name, None if self.key_file is None else str(self.key_file), self.key_command
        )

    def open_store(self, config: StoreConfig) -> ReadStore:
        """The store that `config` names, read with its archive where one is named.

        Raises as ReadStore, `open_repo`, `archive_of`.
        """
        if not self.location:
            from engine.read_store import ReadStore

            return ReadStore(config)
        return self._with_archive(config, self.location)

    @contextmanager
    def open_source(self, config: StoreConfig) -> Iterator[SegmentedLog | None]:
        """The log of the store with its archive, for a scan; None: no archive is named. Raises as `open_store`."""
        if not self.location:
            yield None
            return
        with self._with_archive(config, self.location) as store:
            yield store.source

    def _with_archive(self, config: StoreConfig, location: str) -> ArchivedStore:
        from engine.backup.archive.archive import archive_of
        from engine.backup.archive.reading import ArchivedStore
        from engine.files.disk import Disk

        repository = open_repo(location, self.key_file, self.key_command)
        return ArchivedStore(config, archive_of(Disk(), config, repository, self.name))
