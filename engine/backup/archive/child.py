"""Archiving for a daemon, in a process of its own: `python -m engine.backup.archive.child`, started by the daemon.

For each segment, oldest first, what `expire --archive` does beside a daemon: read it back, keep it, have the daemon
delete it. What comes of it is printed (engine.services.beside). A process and no thread: compressing and hashing would
keep the daemon's loop waiting for the interpreter, and what hangs in a network is ended with it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING, cast

from engine.backup.archive.keeping import ArchiveKeeper
from engine.backup.create.create import store_name
from engine.backup.objects.place import objects_at
from engine.backup.repository import open_repository
from engine.backup.secret import KeySource
from engine.daemon import daemon_of
from engine.errors import RStoreError
from engine.files.disk import Disk
from engine.inspect.next_step import command_line
from engine.inspect.store.survey import survey
from engine.repair.reach import beneath
from engine.services.beside import begin_job, tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.backup.archive.job import ArchiveJob
    from engine.inspect.store.survey import StoreFiles

_NICENESS = 10
"""It gives way, but not to the end: a log that grows faster than it is archived fills the disk."""


class Ended(Exception):
    """The daemon wants this process to end."""


def archive_job(job: ArchiveJob, proceeds: Callable[[], None]) -> None:
    """Do it, and tell of each segment. `proceeds`: called again and again; what it raises ends the work.

    Raises:
        RStoreError: the repository, the store, or the daemon.
    """
    access = job.access
    key = KeySource(access.key_file, access.key_command)
    keeper = ArchiveKeeper(
        open_repository(objects_at(Disk(), access.location), key.secret), access.name, what="serve --archive"
    )
    disk = beneath(Disk(), job.config)
    files = survey(disk, job.config)
    store = keeper.store_of(disk, files)
    tell("opened")
    segments = [one for one in files.log[:-1] if one.end <= job.before]
    if not segments:
        return

    def tick(done: int, total: int) -> None:
        del done, total
        proceeds()

    with keeper.hold():
        for segment in segments:
            proceeds()
            held, why = keeper.held(disk, files, [segment], tick)
            if why:
                tell("waiting", segment=segment.offset, why=why, run=_backup(job, files, store))
                return
            keeper.keep(disk, files, held, tick)
            daemon = daemon_of(files.config.store_path_root_dir)
            start = None if daemon is None else daemon.delete(segment.end, archived=True)
            if start is None:  # it has gone: its next start has this done
                return
            tell("archived", segment=segment.offset, end=segment.end, start=start)


def _backup(job: ArchiveJob, files: StoreFiles, store: str) -> str:
    """The command whose snapshot holds the segments that wait."""
    name = () if store == store_name(files.config) else ("--name", store)
    words = ("backup", "create", "--repo", job.access.location, *name, *job.access.key_words)
    return command_line(job.config, *words)


def main() -> int:
    """Do the job, until it is done or the standard input ends."""
    stop = threading.Event()
    job = cast("ArchiveJob", begin_job(stop))
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)

    def proceeds() -> None:
        if stop.is_set():
            raise Ended

    with contextlib.suppress(BrokenPipeError, Ended):
        try:
            archive_job(job, proceeds)
        except RStoreError as error:
            tell("failed", why=str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
