"""Puts what a repair saved back as new messages: carries out a plan of engine.repair.replay.plan.

Each message goes through an open store like any other put. Before the first one the run is noted durably; then after
every `NOTE_EVERY` bytes, each time after the store was flushed; at the end once more, when the store is closed. Killed
in between, planning again finds what is in (engine.inspect.dump.replayed), and the rest follows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import RStoreError
from engine.files.lock import StoreLock
from engine.inspect.store.change_gate import ChangeKind
from engine.repair.change import Change, ChangeRun
from engine.repair.create import complete_store
from engine.repair.recover.opening import recover_for_open
from engine.repair.replay.plan import ReplayPlan, ReplayRequest, messages_of
from engine.repair.replay.planner import plan_replay
from engine.repair.replay.progress import write_runs
from engine.repair.replay.target import other_store
from engine.store import MessageStore

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.format.message import Message
    from engine.inspect.dump.replayed import Run
    from engine.inspect.store.survey import StoreFiles
    from engine.log.state import StoreState

NOTE_EVERY = 16 << 20
"""Bytes of records between two notes of how far it is."""


def replay(
    disk: Disk,
    plan: ReplayPlan,
    *,
    locked: bool = False,
    progress: Callable[[int, int], None] | None = None,
    held: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> int:
    """Do what the plan says. The caller holds the lock of the repair's store.

    Args:
        disk: how files are reached.
        plan: computed since the lock was taken.
        locked: the caller holds the target's lock, too (of another store, or of the same).
        progress: called with messages put so far and in all.
        held: a context in which an interruption waits: the store is put to only within it.

    Returns:
        messages put by this run of it and those before that were interrupted.

    Raises:
        the plan's refusal. DiskFull, StorageError: what was put stays; run it again for the rest.
    """
    if plan.refusal is not None:
        raise plan.refusal
    return _Replay(disk, plan, locked, progress, held).run()


@dataclass(frozen=True)
class ReplayChange(Change[ReplayPlan]):
    """Put what a repair saved back as new messages."""

    name = "salvage replay"
    kind = ChangeKind.PUT
    done = "the replay is done"

    request: ReplayRequest

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """See Change."""
        return () if self.request.into is None else (os.fspath(self.request.into),)

    @contextmanager
    def hold(self, run: ChangeRun) -> Iterator[None]:
        """See Change. Another store that the messages go into is held, too, where it is there already."""
        with ExitStack() as locks:
            other = other_store(run.disk, run.config, self.request.into)
            if other is not None:
                locks.enter_context(StoreLock(run.disk, other))
            locks.enter_context(StoreLock(run.disk, os.fspath(run.config.store_path_root_dir)))
            yield

    def plan(self, run: ChangeRun, files: StoreFiles) -> ReplayPlan:
        """See Change."""
        with run.caller.progress("reading what was saved") as tick:
            return plan_replay(run.disk, files, self.request, progress=tick)

    def refusal(self, plan: ReplayPlan) -> RStoreError | None:
        """See Change."""
        return plan.refusal

    def changes(self, plan: ReplayPlan) -> bool:
        """See Change."""
        return plan.changed

    def apply(self, run: ChangeRun, plan: ReplayPlan) -> str | None:
        """See Change. Nothing is saved: what is put is new."""
        locked = plan.target.own or other_store(run.disk, run.config, self.request.into) is not None
        with run.caller.deferring() as held, run.caller.progress("replay", is_bytes=False) as tick:
            replay(run.disk, plan, locked=locked, progress=tick, held=held)
        return None

    def if_interrupted(self, plan: ReplayPlan) -> str:
        """See Change."""
        return "the replay is not finished; run it again: no message is put twice"


class _Replay:
    def __init__(
        self,
        disk: Disk,
        plan: ReplayPlan,
        locked: bool,
        progress: Callable[[int, int], None] | None,
        held: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._disk = disk
        self._plan = plan
        self._locked = locked
        self._progress = progress
        self._held = held
        self._run = plan.run

    def run(self) -> int:
        disk, plan = self._disk, self._plan
        if not plan.resumed:
            self._note(self._run)
        disk.step("replay.begun")
        config = plan.target.config
        if plan.target.make:
            complete_store(disk, config)
            disk.step("replay.made")
        store: MessageStore | None = None
        try:
            with self._held():
                store = MessageStore.open(config, disk, recover=self._recover, locked=self._locked)
            self._put_all(store)
        except BaseException:
            if store is not None:
                with self._held(), suppress(RStoreError):  # what went wrong first is what is reported
                    store.close()
            raise
        with self._held():
            store.close()
        disk.step("replay.closed")
        self._note(replace(self._run, done=True))
        return self._run.messages

    def _put_all(self, store: MessageStore) -> None:
        total, done, size = self._plan.share.messages, 0, 0
        place = self._run.position
        for place, message in messages_of(self._plan, self._disk):
            with self._held():
                size += self._put(store, message, done)
            done += 1
            if size >= NOTE_EVERY:
                self._flushed(store, place, done)
                size = 0
            if self._progress is not None and done % 64 == 0:
                self._progress(done, total)
        self._flushed(store, max(place, *self._plan.rules.placed, self._plan.run.position), done)

    def _put(self, store: MessageStore, message: Message, done: int) -> int:
        result = store.put(message, wait=False)
        if result.append is None or not result.ok:
            raise result.failure(done, self._plan.target.root)
        return result.append.size

    def _flushed(self, store: MessageStore, place: int, done: int) -> None:
        with self._held():
            end = store.flush()
        self._disk.step("replay.flushed")
        self._note(replace(self._run, position=place, end=end, messages=self._plan.run.messages + done))

    def _note(self, run: Run) -> None:
        self._run = run
        write_runs(self._disk, self._plan.saved, [*self._plan.runs, run])
        self._disk.step("replay.noted")

    def _recover(self, disk: Disk, config: StoreConfig) -> tuple[StoreState, StoreConfig]:
        """What was planned, while nobody else could change the store; of a store made just now, the usual."""
        return recover_for_open(disk, config, plan=self._plan.target.recovery)
