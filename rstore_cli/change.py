"""A command that changes a store: lock, plan, show, ask, do. One flow for all of them; each fills in its own plan.

A dry run locks nothing and writes nothing. A refused plan is shown, then raised: its JSON goes beside the error's.
"""

from __future__ import annotations

import contextlib
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from engine.errors import InvalidArgument
from rstore_cli._common import FOUND, OK, Settings
from rstore_cli.render import Output, is_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.config import StoreConfig
    from engine.errors import RStoreError
    from engine.files.disk import Disk

Plan = TypeVar("Plan")


class Change(ABC, Generic[Plan]):
    """One run of such a command. `name`: the command's."""

    name: str
    locked = False
    """Whether the store's lock is held."""
    beside = False
    """Whether the store's daemon carries the plan out, which was made for an open store."""
    settles = True
    """Whether a plan that changes nothing ends a repair that was killed as its last step."""

    def __init__(self, settings: Settings) -> None:
        from engine.files.disk import Disk

        self.settings = settings
        self.output: Output = settings.output()
        self.disk: Disk = Disk()

    # --- what a command fills in ------------------------------------------------------------------------------------

    @abstractmethod
    def plan(self, config: StoreConfig) -> Plan:
        """Compute the plan."""

    @abstractmethod
    def refusal(self, plan: Plan) -> RStoreError | None:
        """Why it won't be carried out."""

    @abstractmethod
    def changes(self, plan: Plan) -> bool:
        """Whether carrying it out changes a byte."""

    @abstractmethod
    def json(self, plan: Plan, salvage: str | None) -> dict[str, Any]:
        """The plan, or what was done."""

    @abstractmethod
    def text(self, plan: Plan, *, done: bool, salvage: str | None) -> None:
        """The same in words, printed."""

    @abstractmethod
    def apply(self, plan: Plan) -> str | None:
        """Carry it out; where the old bytes are."""

    def discard(self, plan: Plan) -> None:
        """Give back what a plan holds when it isn't carried out."""

    # --- the flow ---------------------------------------------------------------------------------------------------

    def run(self, config: StoreConfig, *, dry_run: bool, yes: bool) -> int:
        """The exit code."""
        return self._dry(config) if dry_run else self._change(config, yes=yes)

    def _dry(self, config: StoreConfig) -> int:
        from engine.files.lock import holder_of
        from engine.repair.survey import survey

        plan = self.plan(config)
        try:
            holder = holder_of(self.disk, survey(self.disk, config).root)
            if holder is not None and not self.beside:
                who = f"process {holder.pid}" if holder.pid else "another process"
                self.output.note(f"note: {who} has the store open; this is what would be done if it were killed now")
            return self._show(plan)
        finally:
            self.discard(plan)

    def _change(self, config: StoreConfig, *, yes: bool) -> int:
        from engine.repair.memory import forget
        from engine.repair.repairs import finish
        from engine.repair.survey import survey

        root = survey(self.disk, config).root  # no store, no lock file
        with self._holding(root):
            plan = self.plan(config)
            try:
                if self.refusal(plan) is not None:
                    return self._show(plan)
                if not self.changes(plan):
                    if self.settles:
                        forget(self.disk, root)
                        finish(self.disk, survey(self.disk, config).config)
                    return self._show(plan)
                if not self.output.json:
                    self.text(plan, done=False, salvage=None)
                if not (yes or agreed(self.output, self.name)):
                    self.output.warn("Nothing was changed.")
                    return FOUND
                salvage = self.apply(plan)
                if self.output.json:
                    self.output.document(self.json(plan, salvage))
                else:
                    self.text(plan, done=True, salvage=salvage)
                return OK
            finally:
                self.discard(plan)

    @contextlib.contextmanager
    def _holding(self, root: str) -> Iterator[None]:
        """The store is held while the change is planned and made. Raises StoreLocked."""
        from engine.files.lock import StoreLock

        with StoreLock(self.disk, root):
            self.locked = True
            yield

    def _show(self, plan: Plan) -> int:
        """The plan, and the exit code of a plan that isn't carried out; raises its refusal."""
        refusal = self.refusal(plan)
        if not self.output.json:
            self.text(plan, done=False, salvage=None)
        elif refusal is None:
            self.output.document(self.json(plan, None))
        else:
            self.settings.refused_plan = self.json(plan, None)
        if refusal is not None:
            raise refusal
        return FOUND if self.changes(plan) else OK


def agreed(output: Output, name: str) -> bool:
    """Whether who sits here wants the change that was just shown.

    Raises:
        InvalidArgument: nobody does.
    """
    if output.json or not is_terminal(sys.stdin):
        raise InvalidArgument(
            f"{name} asks before it changes a store, and nobody is here to answer",
            hint="--yes does it without asking, --dry-run only shows the plan",
        )
    sys.stdout.flush()
    print("Do it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
