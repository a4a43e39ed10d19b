"""A command that changes a store: lock, plan, show, ask, do. One flow for all of them; each fills in its own plan.

A dry run locks nothing and writes nothing. A refused plan is shown, then raised: its JSON goes beside the error's.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer

from engine.errors import InvalidArgument
from rstore_cli._common import FOUND, OK, Settings
from rstore_cli.render import Output
from rstore_cli.screen import is_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.config import StoreConfig
    from engine.errors import NextStep, RStoreError
    from engine.files.disk import Disk

Plan = TypeVar("Plan")

SalvageDir = Annotated[
    Path | None,
    typer.Option(
        "--salvage-dir",
        metavar="DIR",
        help="Save removed data in DIR, outside of the store (default: salvage/ in the store).",
    ),
]


Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show a refused plan in full.")]
_REFUSED_LINES = 10


def absolute(path: Path | None) -> str | None:
    """The path as it stays true in a link."""
    return None if path is None else str(path.absolute())


class Change(ABC, Generic[Plan]):
    """One run of such a command. `name`: the command's."""

    name: str
    locked = False
    """Whether the store's lock is held."""
    beside = False
    """Whether the store's daemon carries the plan out, which was made for an open store."""
    verbose = False
    """Whether a refused plan is shown as a whole."""

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

    def refused(self, plan: Plan) -> None:
        """Print a plan that won't be carried out: its first lines, the rest behind --verbose."""
        if self.verbose:
            self.text(plan, done=False, salvage=None)
            return
        with contextlib.redirect_stdout(io.StringIO()) as held:
            self.text(plan, done=False, salvage=None)
        lines = held.getvalue().splitlines()
        if len(lines) > _REFUSED_LINES:
            lines[_REFUSED_LINES - 1 :] = [f"… and {len(lines) - _REFUSED_LINES + 1} more lines (--verbose shows all)"]
        for line in lines:
            print(line)

    def following(self, plan: Plan) -> NextStep | None:
        """What to do next, when the plan was carried out, or changes nothing."""
        return None

    def unchanged(self, config: StoreConfig) -> None:
        """The plan changes nothing: end what a killed run of this kind had done all of, and no other repair."""
        return

    def discard(self, plan: Plan) -> None:
        """Give back what a plan holds when it isn't carried out."""

    # --- the flow ---------------------------------------------------------------------------------------------------

    def run(self, config: StoreConfig, *, dry_run: bool, yes: bool) -> int:
        """The exit code."""
        return self._dry(config) if dry_run else self._change(config, yes=yes)

    def _dry(self, config: StoreConfig) -> int:
        from engine.files.lock import holder_of
        from engine.inspect.store.newer import refuse_change
        from engine.inspect.store.survey import survey

        files = survey(self.disk, config)
        refuse_change(files.root, files.newer)
        plan = self.plan(config)
        try:
            holder = holder_of(self.disk, files.root)
            if holder is not None and not self.beside:
                who = f"process {holder.pid}" if holder.pid else "another process"
                self.output.note(f"note: {who} has the store open; this is what would be done if it were killed now")
            return self._show(plan)
        finally:
            self.discard(plan)

    def _change(self, config: StoreConfig, *, yes: bool) -> int:
        from engine.format import names
        from engine.inspect.store.newer import refuse_change
        from engine.inspect.store.survey import survey

        files = survey(self.disk, config)  # no store, no lock file
        root = files.root
        refuse_change(root, files.newer)
        lock = os.path.join(root, names.LOCK)
        if any(odd.path == lock for odd in files.odd):  # nobody can hold it: what to do about it is in the plan
            plan = self.plan(config)
            try:
                if self.refusal(plan) is not None:
                    return self._show(plan)
            finally:
                self.discard(plan)
        with self._holding(root):
            plan = self.plan(config)
            try:
                if self.refusal(plan) is not None:
                    return self._show(plan)
                if not self.changes(plan):
                    self.unchanged(files.config)
                    return self._show(plan)
                if not self.output.json:
                    self.text(plan, done=False, salvage=None)
                if not (yes or agreed(self.output, self.name)):
                    self.output.warn("Nothing was changed.")
                    return FOUND
                salvage = self.apply(plan)
                self._tell(plan, self.following(plan), done=True, salvage=salvage)
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
        from engine.errors import NextStep

        refusal = self.refusal(plan)
        if refusal is not None:
            if not self.output.json:
                self.refused(plan)
            found = None if refusal.next is None else refusal.next.to_json()
            self.settings.refused_plan = {**self.json(plan, None), "next": found}
            raise refusal
        changes = self.changes(plan)
        following = NextStep(self.settings.again(), "carries this plan out") if changes else self.following(plan)
        self._tell(plan, following, done=False, salvage=None)
        return FOUND if changes else OK

    def _tell(self, plan: Plan, following: NextStep | None, *, done: bool, salvage: str | None) -> None:
        """The plan, or what was done, and what comes next."""
        if self.output.json:
            # What carries a plan out is plain from the plan; what comes after it is told when it was carried out.
            found = {} if following is None or (not done and self.changes(plan)) else {"next": following.to_json()}
            self.output.document({**self.json(plan, salvage), **found})
            return
        self.text(plan, done=done, salvage=salvage)
        if following is not None:
            self.output.text(f"Next: {following}")


def agreed(output: Output, name: str) -> bool:
    """Whether who sits here wants the change that was just shown.

    Raises:
        InvalidArgument: nobody does.
    """
    if output.json or not is_terminal(sys.stdin):
        raise InvalidArgument(
            f"{name} asks before it changes a store, and there is no terminal to answer on",
            hint="--yes does it without asking, --dry-run only shows the plan",
        )
    sys.stdout.flush()
    print("Do it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
