"""A round of retention as a change: on a closed store, or in the daemon that has it open."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engine.errors import StorageError
from engine.files.lock import StoreLock
from engine.files.operations import Touch
from engine.repair.change import Change, ChangeRun
from engine.repair.expire.expire import ExpirePlan, ExpireRules, apply_expire, plan_expire

if TYPE_CHECKING:
    from engine.errors import RStoreError
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles


class RetentionDaemon(Protocol):
    """A daemon that has the store open, and deletes its files itself. Physical offsets."""

    @property
    def in_use(self) -> int:
        """From where on it needs its log."""

    def delete(self, before: int) -> int | None:
        """Have it delete the files before an offset; where its log starts then, None: it has gone."""


@dataclass(frozen=True)
class ExpireChange(Change[ExpirePlan]):
    """Delete what `rules` let go. `daemon`: of an open store; None: it is closed."""

    name = "expire"

    rules: ExpireRules
    daemon: RetentionDaemon | None = None

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
        if self.daemon is not None:
            yield
        else:
            with StoreLock(run.disk, os.fspath(run.config.store_path_root_dir)):
                yield

    def plan(self, run: ChangeRun, files: StoreFiles) -> ExpirePlan:
        """See Change."""
        in_use = None if self.daemon is None else self.daemon.in_use
        with run.caller.progress("reading files to delete") as tick:
            return plan_expire(run.disk, files, self.rules, progress=tick, in_use=in_use)

    def refusal(self, plan: ExpirePlan) -> RStoreError | None:
        """See Change."""
        return plan.refusal

    def changes(self, plan: ExpirePlan) -> bool:
        """See Change."""
        return plan.changed

    def touched(self, disk: Disk, plan: ExpirePlan) -> Iterable[tuple[str, Touch]]:
        """See Change."""
        return () if self.daemon is not None else ((path, Touch.NAME) for path in plan.removed)

    def apply(self, run: ChangeRun, plan: ExpirePlan) -> str | None:
        """See Change. Nothing is saved."""
        if self.daemon is None:
            apply_expire(run.disk, plan)
            return None
        start = self.daemon.delete(plan.log_min)
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
