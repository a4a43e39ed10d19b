"""Archiving beside the daemon: a process of its own (engine.backup.archive.child) for each round of retention.

Rounds tell here which segments they would delete (`want`); a thread starts the process, which archives them, oldest
first, and asks the daemon to delete each. What is not held stays, whatever the disk: its log says why and what to run,
once, until something else is the matter.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from engine.backup.archive.job import ArchiveJob
from engine.broker.watch.processes import END_S, JobProcess
from engine.services.beside import encode_job

if TYPE_CHECKING:
    import logging

    from engine.backup.archive.job import ArchiveAccess
    from engine.store import MessageStore

_AGAIN_S = 60.0
"""Between two tries of what a snapshot does not hold yet, or of a repository that can't be reached."""


class Archiving:
    """See the module. Also the store's RetentionArchive.

    Args:
        store: that is open.
        access: where its archive is; None: what has expired is deleted without one.
        log: where what happens is told.
        again_s: between two tries.

    Attributes:
        archived: segments that were archived and deleted.
        error: why the archive can't be written now; "": it can.
        waits_for: why the first segment that is to go stays; "": none waits.
    """

    def __init__(
        self, store: MessageStore, access: ArchiveAccess | None, log: logging.Logger, again_s: float = _AGAIN_S
    ) -> None:
        self._store = store
        self._access = access
        self._log = log
        self._again_s = again_s
        self._child = JobProcess("engine.backup.archive.child", log)
        self._wanted = threading.Event()
        self._before = 0
        self._done_to = 0
        self._run = ""
        self._thread: threading.Thread | None = None
        self.archived = 0
        self.error = ""
        self.waits_for = ""
        if access is not None:
            store.clean.archive_with(self)

    @property
    def location(self) -> str | None:
        """The repository; None: there is no archive."""
        return None if self._access is None else self._access.location

    @property
    def waiting(self) -> int:
        """Segments that retention would delete and that are still there."""
        before = self._before
        return sum(1 for file in self._store.log.files.files if file.file_from_offset + file.file_size <= before)

    def to_json(self) -> dict[str, Any] | None:
        """Of `rstore status --json`; None: there is no archive."""
        if self._access is None:
            return None
        return {
            "repository": self._access.location,
            "archived": self.archived,
            "waiting": self.waiting,
            "waitsFor": self.waits_for or None,
            "error": self.error or None,
        }

    def start(self) -> None:
        """Begin, where there is an archive: it is opened once, to see whether it can be."""
        if self._access is not None:
            args = (self._access,)
            self._thread = threading.Thread(target=self._keep, args=args, name="rstore-archive", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for it: a piece may be under way, what hangs in a network is killed. In any thread but the
        loop's."""
        self._child.end()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(END_S)

    # --- of the store's rounds --------------------------------------------------------------------------------------

    @property
    def hint(self) -> str:
        """See RetentionArchive."""
        if not self.waits_for or not self.waiting:
            return "free space; no restart is needed"
        return f"segments wait for the archive: {self._run}"

    def want(self, before: int) -> None:
        """See RetentionArchive."""
        self._before = before
        if before > self._done_to:
            self._wanted.set()

    # --- the thread -------------------------------------------------------------------------------------------------

    def _keep(self, access: ArchiveAccess) -> None:
        ending = self._child.ending
        self._try(access, 0)
        while not ending.is_set():
            self._wanted.wait()
            self._wanted.clear()
            before = self._before
            self._try(access, before)
            if self._done_to < before:
                ending.wait(self._again_s)

    def _try(self, access: ArchiveAccess, before: int) -> None:
        try:
            code = self._child.run(encode_job(ArchiveJob(self._store.config, access, before)), self._hear)
        except OSError as error:
            self._failed(error.strerror or str(error))
        else:
            if code:
                self._failed(f"its process ended with exit code {code}")

    def _hear(self, told: dict[str, Any]) -> None:
        match told["what"]:
            case "opened":
                if self.error:
                    self._log.info("the archive can be used again", extra={"repository": self.location})
                self.error = ""
            case "archived":
                self._done_to = int(told["end"])
                self.archived += 1
                self.waits_for = ""
                extra = {"segment": told["segment"], "min_offset": told["start"]}
                self._log.info("segment archived", extra=extra)
            case "waiting":
                why, self._run = str(told["why"]), str(told["run"])
                if why != self.waits_for:
                    extra = {"segment": told["segment"], "why": why, "run": self._run}
                    self._log.warning("segments wait for the archive and stay", extra=extra)
                self.waits_for = why
            case "failed":
                self._failed(str(told["why"]))

    def _failed(self, why: str) -> None:
        """The same thing once, until something else happens."""
        if why != self.error and not self._child.ending.is_set():
            self._log.warning("archiving failed; will retry", extra={"repository": self.location, "why": why})
            self.error = why
