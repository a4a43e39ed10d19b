"""A command that changes a store: it shows the plan, asks, and shows what was done. The engine does the rest
(engine.repair.change).

A refused plan is shown, then raised: its JSON goes beside the error's.
"""

from __future__ import annotations

import contextlib
import io
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
    from contextlib import AbstractContextManager

    from engine.config import StoreConfig
    from engine.errors import RStoreError
    from engine.repair.change import Change, ChangeRun, Deferring, Tick

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


class ChangeCommand(ABC, Generic[Plan]):
    """One run of such a command, which is the caller that the engine asks and tells (engine.repair.change.Caller).

    `verbose`: a refused plan is shown as a whole.
    """

    def __init__(self, settings: Settings, change: Change[Plan], *, verbose: bool = False) -> None:
        self.settings = settings
        self.output: Output = settings.output()
        self.change = change
        self.verbose = verbose

    # --- what a command fills in ------------------------------------------------------------------------------------

    @abstractmethod
    def json(self, plan: Plan, *, done: bool, salvage: str | None) -> dict[str, Any]:
        """The plan, or what was done."""

    @abstractmethod
    def text(self, plan: Plan, *, done: bool, salvage: str | None) -> None:
        """The same in words, printed."""

    def show_refused(self, run: ChangeRun, plan: Plan) -> None:
        """Print a plan that won't be carried out: its first lines, the rest behind --verbose."""
        del run
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

    # --- the run ----------------------------------------------------------------------------------------------------

    def run(self, config: StoreConfig, *, dry_run: bool, yes: bool) -> int:
        """The exit code."""
        from engine.errors import NextStep
        from engine.files.disk import Disk
        from engine.repair.change import Ending, carry_out, preview

        self._yes = yes
        run = preview if dry_run else carry_out
        outcome = run(self.change, Disk(), config, self)
        if outcome.ending is Ending.DECLINED:
            self.output.warn("Nothing was changed.")
            return FOUND
        done = outcome.ending is Ending.APPLIED
        following = outcome.next
        if outcome.changes and not done:
            following = NextStep(self.settings.again(), "applies this plan")
        if self.output.json:
            # What carries a plan out is plain from the plan; what comes after it is shown when it was carried out.
            next_key = {} if outcome.next is None else {"next": outcome.next.to_json()}
            self.output.document({**self.json(outcome.plan, done=done, salvage=outcome.salvage), **next_key})
        else:
            self.text(outcome.plan, done=done, salvage=outcome.salvage)
            if following is not None:
                self.output.text(f"Next: {following}")
        return FOUND if outcome.changes and not done else OK

    # --- what the engine asks and tells -----------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """See Caller."""
        self.output.note(f"note: {text}")

    def warn(self, text: str) -> None:
        """See Caller."""
        self.output.warn(text)

    def progress(self, what: str, *, is_bytes: bool = True) -> AbstractContextManager[Tick]:
        """See Caller."""
        return self.output.progress(what, is_bytes=is_bytes)

    def refused(self, run: ChangeRun, plan: Plan, refusal: RStoreError) -> None:
        """See Caller."""
        if not self.output.json:
            self.show_refused(run, plan)
        following = None if refusal.next is None else refusal.next.to_json()
        self.settings.refused_plan = {**self.json(plan, done=False, salvage=None), "next": following}

    def agrees(self, plan: Plan) -> bool:
        """See Caller."""
        if not self.output.json:
            self.text(plan, done=False, salvage=None)
        return self._yes or agreed(self.output, self.change.name)

    def interruptible(self, text: str) -> None:
        """See Caller."""
        self.settings.on_interrupt = text

    @contextlib.contextmanager
    def deferring(self) -> Iterator[Deferring]:
        """See Caller."""
        from rstore_cli.interrupt import Interrupts

        with Interrupts() as interrupts:
            yield interrupts.held


def agreed(output: Output, name: str) -> bool:
    """Whether who sits here wants the change that was just shown.

    Raises:
        InvalidArgument: nobody does.
    """
    if output.json or not is_terminal(sys.stdin):
        raise InvalidArgument(
            f"{name} asks for confirmation, and there is no terminal to answer on",
            hint="--yes applies the plan without asking, --dry-run only shows it",
        )
    sys.stdout.flush()
    print("Apply this plan? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
