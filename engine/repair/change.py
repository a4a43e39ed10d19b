"""The one door through which a closed store is changed: lock → survey → plan → refuse → ask → apply → finish.

Each kind of change is a `Change`: a value whose fields are its options, in the room of its plan (recover/change.py,
truncate/change.py …). `carry_out` runs it for everybody: the command line, which shows the plan and asks; a drill,
which agrees to all. `preview` is the dry run: it locks nothing, and writes nothing into the store.

The disk of a run makes changes below the store's directories alone (reach.py): no change has to take care of it.

A store is surveyed once, and the survey is handed on. Before the lock only so much is looked at that no lock file is
made where no store is: what a survey saw before the lock may be stale when it is held.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from engine.dataclass import dataclass
from engine.files.lock import StoreLock, holder_of
from engine.format import names
from engine.inspect.store.change_gate import ChangeKind, refuse_change, refuse_open
from engine.inspect.store.odd import in_places
from engine.inspect.store.survey import demand_store, survey
from engine.repair.reach import beneath, outside, told_of_links
from engine.seals.directory import remove_seals_of

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.errors import NextStep, RStoreError
    from engine.files.disk import Disk
    from engine.files.entry import Entry
    from engine.files.operations import Touch
    from engine.inspect.store.survey import StoreFiles

Plan = TypeVar("Plan")
Plan_contra = TypeVar("Plan_contra", contravariant=True)
Tick = Callable[[int, int], None]
"""Told how much is done, and of how much."""
Deferring = Callable[[], AbstractContextManager[None]]
"""Makes a context in which an interruption waits."""


class Caller(Protocol[Plan_contra]):
    """Who wants a change: asked whether it may be made, and told how it goes."""

    def note(self, text: str) -> None:
        """What is worth knowing beside the plan."""

    def warn(self, text: str) -> None:
        """What did not go as planned."""

    def progress(self, what: str, *, is_bytes: bool = True) -> AbstractContextManager[Tick | None]:
        """A context in which `what` is done, with what it tells how far it is (None: nobody wants to know)."""

    def refused(self, run: ChangeRun, plan: Plan_contra, refusal: RStoreError) -> None:
        """The plan won't be carried out: `refusal` is raised next. Another one can be planned in this `run`."""

    def agrees(self, plan: Plan_contra) -> bool:
        """Whether to carry out a plan that changes something."""

    def interruptible(self, text: str) -> None:
        """From now on `text` says what an interruption leaves."""

    def deferring(self) -> AbstractContextManager[Deferring]:
        """A context around work that may only be interrupted between its steps."""


class Consent:
    """The caller that agrees to every plan that isn't refused, and wants to hear nothing: a drill, a job."""

    def note(self, text: str) -> None:
        """See Caller."""

    def warn(self, text: str) -> None:
        """See Caller."""

    def progress(self, what: str, *, is_bytes: bool = True) -> AbstractContextManager[Tick | None]:
        """See Caller."""
        del what, is_bytes
        return nullcontext()

    def refused(self, run: ChangeRun, plan: Any, refusal: RStoreError) -> None:
        """See Caller."""

    def agrees(self, plan: Any) -> bool:
        """See Caller."""
        del plan
        return True

    def interruptible(self, text: str) -> None:
        """See Caller."""

    def deferring(self) -> AbstractContextManager[Deferring]:
        """See Caller."""
        return nullcontext(nullcontext)


@dataclass(frozen=True, slots=True)
class ChangeRun:
    """One run of a change: how files are reached, what names the store, who wants it, and whether its lock is held."""

    disk: Disk
    config: StoreConfig
    caller: Caller[Any]
    locked: bool


class Change(ABC, Generic[Plan]):
    """One kind of change, with its options. It keeps nothing of a run: what one needs is in its plan.

    `name`: the command's. `kind`: what it does to a store, by which one of RocketMQ 5 takes it or not.
    """

    name: ClassVar[str]
    kind: ClassVar[ChangeKind]

    @property
    @abstractmethod
    def done(self) -> str:
        """What an interruption leaves once the plan is applied."""

    @property
    def is_beside(self) -> bool:
        """Whether it is made for a store that a daemon has open, and carried out by that."""
        return False

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """Directories outside of the store that its options name, and where it makes changes, too."""
        return ()

    def settings(self, disk: Disk, config: StoreConfig) -> StoreConfig:
        """The settings that the store is surveyed with."""
        del disk
        return config

    @contextmanager
    def hold(self, run: ChangeRun) -> Iterator[None]:
        """Nobody else changes the store while the change is planned and made. Raises StoreLocked."""
        with StoreLock(run.disk, os.fspath(run.config.store_path_root_dir)):
            yield

    @abstractmethod
    def plan(self, run: ChangeRun, files: StoreFiles) -> Plan:
        """Compute what is changed in the store that was just surveyed. Changes nothing of it.

        Raises:
            RStoreError: there is nothing to plan, or it is refused before there is a plan.
        """

    def refusal(self, plan: Plan) -> RStoreError | None:
        """Why the plan won't be carried out."""
        del plan
        return None

    @abstractmethod
    def changes(self, plan: Plan) -> bool:
        """Whether carrying it out changes a byte."""

    def touched(self, disk: Disk, plan: Plan) -> Iterable[tuple[str, Touch]]:
        """Paths of the store that carrying it out changes, and how: a link that it would go through refuses the plan.

        Those in directories that rstore makes for itself need not be named.
        """
        del disk, plan
        return ()

    def rewritten(self, disk: Disk, plan: Plan) -> Iterable[str]:
        """Paths whose bytes or names it changes: segments of the log among them lose their seals before.

        Not those that it makes what their seal says again.
        """
        return (path for path, _ in self.touched(disk, plan))

    @abstractmethod
    def apply(self, run: ChangeRun, plan: Plan) -> str | None:
        """Save what goes, carry the plan out, and finish. Killed at any point: it is run again.

        Returns:
            the directory that holds the old bytes; None when nothing was saved.
        """

    def unchanged(self, disk: Disk, files: StoreFiles) -> None:
        """The plan changes nothing: end what a killed run of this kind had done all of, and no other repair."""

    @abstractmethod
    def if_interrupted(self, plan: Plan) -> str:
        """What an interruption of `apply` leaves, and what to run then."""

    def following(self, plan: Plan) -> NextStep | None:
        """What to do next, when the plan was carried out, or changes nothing."""
        del plan
        return None

    def discard(self, disk: Disk, plan: Plan) -> None:
        """Give back what a plan holds, however the run ended."""


class Ending(Enum):
    """How a run that was not refused ended."""

    PREVIEWED = auto()
    UNCHANGED = auto()
    DECLINED = auto()
    APPLIED = auto()


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Plan]):
    """What came of a run.

    Attributes:
        plan: which is discarded: only to be shown.
        ending: how it ended.
        changes: whether carrying the plan out changes a byte, or did.
        salvage: the directory that holds the old bytes.
        next: what to do next, where the plan was carried out or has nothing to change.
    """

    plan: Plan
    ending: Ending
    changes: bool
    salvage: str | None = None
    next: NextStep | None = None


def carry_out(
    change: Change[Plan], disk: Disk, config: StoreConfig, caller: Caller[Plan] | None = None
) -> Outcome[Plan]:
    """Plan a change of the store that `config` names, and make it where the caller agrees (without one: at once).

    Raises:
        the plan's refusal. NotAStore, NewerStore, StoreLocked: nothing was written, not even a lock file. OutsideStore:
        it would change what lies outside of the store. DiskFull, StorageError: run it again.
    """
    entries = demand_lockable(disk, config, change.kind)
    disk = beneath(disk, config, change.elsewhere)
    run = ChangeRun(disk, config, caller or Consent(), locked=True)
    _note_links(run)
    if _is_lock_odd(disk, config, entries):  # what to do about it is in the plan
        unlocked = replace(run, locked=False)
        with _planned(change, unlocked) as (_, plan):
            _refuse(change, unlocked, plan)
    with change.hold(run), _planned(change, run) as (files, plan):
        _refuse(change, run, plan)
        if not change.changes(plan):
            change.unchanged(disk, files)
            return Outcome(plan, Ending.UNCHANGED, changes=False, next=change.following(plan))
        if not run.caller.agrees(plan):
            return Outcome(plan, Ending.DECLINED, changes=True)
        run.caller.interruptible(change.if_interrupted(plan))
        remove_seals_of(disk, config, partial(change.rewritten, disk, plan))
        salvage = change.apply(run, plan)
        run.caller.interruptible(change.done)
        return Outcome(plan, Ending.APPLIED, changes=True, salvage=salvage, next=change.following(plan))


def preview(change: Change[Plan], disk: Disk, config: StoreConfig, caller: Caller[Plan] | None = None) -> Outcome[Plan]:
    """Plan a change, and write nothing into the store, which another process may hold.

    Raises:
        the plan's refusal. NotAStore, NewerStore, StorageError.
    """
    run = ChangeRun(beneath(disk, config, change.elsewhere), config, caller or Consent(), locked=False)
    _note_links(run)
    with _planned(change, run) as (files, plan):
        if not change.is_beside:
            _note_holder(run, files.root)
        _refuse(change, run, plan)
        changes = change.changes(plan)
        return Outcome(plan, Ending.PREVIEWED, changes, next=None if changes else change.following(plan))


def demand_lockable(disk: Disk, config: StoreConfig, kind: ChangeKind) -> tuple[Entry, ...]:
    """What is in a store's directory, where it holds a store that may be changed so: a lock file is only made there.

    Raises:
        NotAStore, StorageError. NewerStore: it has a part of RocketMQ 5 that this does not keep right.
    """
    entries = demand_store(disk, config, os.fspath(config.store_path_root_dir))
    refuse_open(disk, config, kind)
    return entries


def survey_to_change(disk: Disk, config: StoreConfig, kind: ChangeKind) -> StoreFiles:
    """The survey of a store that is to be changed.

    Raises:
        NotAStore, StorageError. NewerStore: it has a part of RocketMQ 5 that this does not keep right.
    """
    files = survey(disk, config)
    refuse_change(files.root, files.newer, kind)
    return files


@contextmanager
def _planned(change: Change[Plan], run: ChangeRun) -> Iterator[tuple[StoreFiles, Plan]]:
    """The store's survey and the plan that is made from it, discarded at the end."""
    files = survey_to_change(run.disk, change.settings(run.disk, run.config), change.kind)
    plan = change.plan(run, files)
    try:
        yield files, plan
    finally:
        change.discard(run.disk, plan)


def _refuse(change: Change[Plan], run: ChangeRun, plan: Plan) -> None:
    """Raise the plan's refusal, once it was shown; one that would change something through a link has one, too."""
    refusal = change.refusal(plan)
    if refusal is None and change.changes(plan):
        refusal = outside(run.disk, change.touched(run.disk, plan))
    if refusal is not None:
        run.caller.refused(run, plan, refusal)
        raise refusal


def _note_links(run: ChangeRun) -> None:
    for text in told_of_links(run.disk):
        run.caller.note(text)


def _note_holder(run: ChangeRun, root: str) -> None:
    holder = holder_of(run.disk, root)
    if holder is not None:
        who = f"process {holder.pid}" if holder.pid else "another process"
        run.caller.note(f"{who} has the store open; this is what would be done if it were killed now")


def _is_lock_odd(disk: Disk, config: StoreConfig, entries: tuple[Entry, ...]) -> bool:
    """Whether something else stands in the lock file's place, so that nobody can hold it."""
    root = os.fspath(config.store_path_root_dir)
    return any(odd.path == os.path.join(root, names.LOCK) for odd in in_places(disk, config, root, entries))
