"""A round of retention as a change: on a closed store, or in the daemon that has it open."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

from engine.dataclass import dataclass
from engine.errors import NewerStore, Refused, StorageError
from engine.files.lock import StoreLock
from engine.files.operations import Touch
from engine.inspect.store.archive_note import archive_note, note_path
from engine.inspect.store.change_gate import ChangeKind
from engine.repair.change import Change, ChangeRun
from engine.repair.expire.expire import ExpirePlan, ExpireRules, apply_expire, plan_expire

if TYPE_CHECKING:
    from engine.errors import RStoreError
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.repair.expire.archive import SegmentArchive


def only_archived(location: str) -> Refused:
    """The refusal of a daemon that keeps an archive, where a command would delete without it."""
    return Refused(
        "the daemon deletes only segments that its archive holds (serve --archive)",
        path=location,
        hint=f"rstore expire --archive {shlex.quote(location)}",
    )


class RetentionDaemon(Protocol):
    """A daemon that has the store open, and deletes its files itself. Physical offsets."""

    @property
    def in_use(self) -> int:
        """From where on it needs its log."""

    @property
    def archive(self) -> str | None:
        """The repository without which it deletes nothing; None: it keeps no archive."""

    def delete(self, before: int, *, archived: bool) -> int | None:
        """Have it delete the files before an offset; where its log starts then, None: it has gone.

        `archived`: an archive has them.
        """


@dataclass(frozen=True)
class ExpireChange(Change[ExpirePlan]):
    """Delete what `rules` let go. `daemon`: of an open store; None: it is closed. `archive`: what it does not hold
    stays; None: nothing is kept elsewhere."""

    name = "expire"
    kind = ChangeKind.EXPIRY

    rules: ExpireRules
    daemon: RetentionDaemon | None = None
    archive: SegmentArchive | None = None

    @property
    def done(self) -> str:
        """See Change."""
        return "the daemon continues" if self.daemon is not None else "the files are deleted"

    @property
    def is_beside(self) -> bool:
        """See Change."""
        return self.daemon is not None

    @contextmanager
    def hold(self, run: ChangeRun) -> Iterator[None]:
        """See Change. A daemon holds its store itself."""
        with ExitStack() as held:
            if self.daemon is None:
                held.enter_context(StoreLock(run.disk, os.fspath(run.config.store_path_root_dir)))
            if self.archive is not None:
                held.enter_context(self.archive.hold())
            yield

    def plan(self, run: ChangeRun, files: StoreFiles) -> ExpirePlan:
        """See Change."""
        in_use = None if self.daemon is None else self.daemon.in_use
        if self.daemon is not None and self.daemon.archive is not None and self.archive is None:
            raise only_archived(self.daemon.archive)
        if self.archive is not None and files.newer.batch_topics:
            raise NewerStore(
                "an archive does not take messages of batch consume queues",
                path=files.root,
                hint="rstore expire without --archive deletes their segments",
            )
        self._note_archive(run, files)
        with run.caller.progress("reading files to delete") as tick:
            return plan_expire(run.disk, files, self.rules, progress=tick, in_use=in_use, archive=self.archive)

    def _note_archive(self, run: ChangeRun, files: StoreFiles) -> None:
        note = None if self.archive is not None else archive_note(run.disk, files.root)
        if note is not None:
            step = note.step(files.config, "expire")
            run.caller.note(
                f"the store has an archive, which gets nothing of what is deleted without it: {step.command}"
            )

    def refusal(self, plan: ExpirePlan) -> RStoreError | None:
        """See Change."""
        return plan.refusal

    def changes(self, plan: ExpirePlan) -> bool:
        """See Change."""
        return plan.changed

    def touched(self, disk: Disk, plan: ExpirePlan) -> Iterable[tuple[str, Touch]]:
        """See Change."""
        if self.archive is not None and plan.held:
            yield note_path(plan.files.root), Touch.CONTENT
        if self.daemon is None:
            yield from ((path, Touch.NAME) for path in plan.removed)

    def apply(self, run: ChangeRun, plan: ExpirePlan) -> str | None:
        """See Change. Nothing is saved in the store."""
        if self.archive is not None and plan.held:
            with run.caller.progress("archiving") as tick:
                self.archive.keep(run.disk, plan.files, plan.held, tick)
        if self.daemon is None:
            apply_expire(run.disk, plan)
            return None
        start = self.daemon.delete(plan.log_min, archived=self.archive is not None)
        if start is None:
            raise StorageError("the daemon has gone", path=plan.files.root, hint="run rstore expire again")
        if start < plan.log_min:
            run.caller.warn(f"Log start: {start}; files still being read are deleted later.")
        return None

    def if_interrupted(self, plan: ExpirePlan) -> str:
        """See Change."""
        if self.daemon is not None:
            return "the daemon continues"
        return "some files are deleted, the store is sound; run rstore expire again for the rest"
