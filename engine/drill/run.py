"""Runs one drill: its steps in order, and after an interrupted step all that follows once for each try.

The tree of tries is walked depth first, so that few copies of the store are there at a time. A try whose expectation
doesn't hold goes no further; the others do.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from engine.drill.baseline import Baseline
from engine.drill.content import content
from engine.drill.crash import StepFailed, quiet_threads
from engine.drill.files import copy_tree, remove_tree
from engine.drill.judge import Judge
from engine.drill.ledger import Clock, DrillLedger
from engine.drill.result import CARRIED_OUT, DrillResult, Failure, StepResult
from engine.drill.scene import Scene, SceneDirectory, moved
from engine.drill.script import Drill, Put, RunCommand, name_of
from engine.drill.steps import How, NotHere, perform
from engine.errors import DiskFull, RStoreError
from engine.files.disk import Disk
from engine.format.quantities import counted
from engine.format.queue_unit import UNIT_SIZE

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.drill.script import AnyStep

Progress = Callable[[int, int], None]
"""(done, total): steps, with those after each try."""
_FLUSH_OFTEN = {"flush_interval_consume_queue": 5, "flush_consume_queue_thorough_interval": 10}
"""Queues and checkpoint are flushed all the time: more moments that differ."""
USUAL_RATIO = 0.3
"""What a disk seems to be used when no script says otherwise."""
_EMPTY = 1 << 20
"""Bytes below which a file system counts as full."""


def run_drill(
    drill: Drill,
    place: str,
    *,
    source: StoreConfig | None = None,
    how: How | None = None,
    keep: bool = False,
    progress: Progress | None = None,
) -> DrillResult:
    """Run it below the directory `place`; whatever goes wrong is in the result.

    Args:
        drill: what to do.
        place: a directory of its own.
        source: a sound store that it starts from, as a copy (unless the script wants its own).
        how: how many interruptions.
        keep: leave the stores there.
        progress: see Progress.
    """
    began = time.monotonic()
    result = DrillResult(drill.name, drill.purpose, scratch=place if keep else None)
    result.steps = [StepResult(number, name_of(step)) for number, step in enumerate(drill.steps, 1)]
    how = how or How()
    if drill.store.file_system is not None and how.own_place is None:
        result.verdict, result.why = "not run", "it requires a small file system of its own"
        return result
    run = _Run(drill, SceneDirectory(place, keep), how, result, progress)
    try:
        with quiet_threads():
            run.run(None if drill.store.own else source)
    except NotHere as error:
        result.verdict, result.why = "not run", str(error)
    result.seconds = time.monotonic() - began
    if not keep:
        remove_tree(place)
    return result


class _Run:
    def __init__(
        self, drill: Drill, place: SceneDirectory, how: How, result: DrillResult, progress: Progress | None
    ) -> None:
        self._drill = drill
        self._place = place
        self._how = how
        self._result = result
        self._progress = progress
        self._done = 0
        self._total = len(drill.steps)

    def run(self, source: StoreConfig | None) -> None:
        with self._failing(1, ()):
            scene = self._first(source)
            try:
                self._go_on(scene, 0)
            finally:
                self._close(scene)

    def _first(self, source: StoreConfig | None) -> Scene:
        """The store to begin with."""
        root = self._place.new()
        if source is not None:
            config = moved(source, root).with_changes(**_FLUSH_OFTEN)
            return self._copied(source, config)
        spec = self._drill.store
        from pathlib import Path

        from engine.config import StoreConfig
        from engine.repair.create import create_store

        config = StoreConfig(store_path_root_dir=Path(root)).with_changes(
            mapped_file_size_commit_log=spec.commitlog_file_size,
            mapped_file_size_consume_queue=spec.queue_file_units * UNIT_SIZE,
            max_hash_slot_num=spec.index_slots,
            max_index_num=spec.index_entries,
            **_FLUSH_OFTEN,
        )
        usual = None if self._how.own_place else USUAL_RATIO
        scene = Scene(config, self._place, DrillLedger(), channel=spec.channel, used_ratio=usual, usual_ratio=usual)
        disk = scene.new_disk()
        disk.mkdirs(root)
        if spec.made:
            create_store(disk, config)
        self._result.store = f"created for it: segments of {spec.commitlog_file_size} bytes"
        return scene

    def _copied(self, source: StoreConfig, config: StoreConfig) -> Scene:
        """A copy of a sound store, brought to where a broker's start would bring it."""
        from engine.drill.commands import execute

        clock = Clock(now=Disk().now_ms(), step=1)
        scene = Scene(
            config,
            self._place,
            DrillLedger(),
            clock=clock,
            channel=self._drill.store.channel,
            used_ratio=USUAL_RATIO,
            usual_ratio=USUAL_RATIO,
        )
        disk = scene.new_disk()
        copy_tree(disk, os.fspath(source.store_path_root_dir), scene.root)
        outcome = execute("recover", disk, scene.config, {})
        if outcome.exit:
            raise NotHere(f"the store is not sound: {outcome.summary}")
        scene.baseline = Baseline(disk, scene.config)
        self._result.store = f"a copy of {counted(len(scene.baseline), 'record')}"
        return scene

    def _go_on(self, scene: Scene, index: int) -> None:
        """The steps from `index` on, on this scene."""
        if index == len(self._drill.steps):
            return
        step, number = self._drill.steps[index], index + 1
        notes: list[str] = []

        def tell(tried: int, of: int) -> None:
            here = self._result.steps[index]
            here.tried += tried
            here.of += of
            here.how = step.crash.how if isinstance(step, Put | RunCommand) and step.crash else None
            self._total += (tried - 1) * (len(self._drill.steps) - index)

        with self._failing(number, scene.branch):
            tries = 0
            for child in perform(scene, step, number, self._how, tell, notes):
                tries += 1
                self._note(index, notes)
                try:
                    with self._failing(number, child.branch):
                        if self._holds(child, step, number):
                            self._go_on(child, index + 1)
                finally:
                    self._tick()
                    if child is not scene:
                        self._close(child)
            if not tries:
                raise StepFailed("there is nothing to interrupt")
        self._note(index, notes)

    def _holds(self, scene: Scene, step: AnyStep, number: int) -> bool:
        """Whether all that is expected holds; what is to be remembered is remembered then."""
        judge = Judge(scene, step)
        unmet = list(judge.unmet())
        self._result.judged += judge.judged
        for one in unmet:
            self._result.fail(Failure(number, *one, branch="; ".join(scene.branch)))
        if step.remember is not None:
            scene.states[step.remember] = content(scene.new_disk(), scene.config)
        return not unmet

    def _close(self, scene: Scene) -> None:
        """A store that a failed step has left open may not close: its disk is still full, and that is reported."""
        with contextlib.suppress(RStoreError) if self._result.failed else contextlib.nullcontext():
            scene.close()

    @contextlib.contextmanager
    def _failing(self, number: int, branch: tuple[str, ...]) -> Iterator[None]:
        """An error of the engine is a step that was not carried out; of this machine, a drill that was not run."""
        try:
            yield
        except NotHere:
            raise
        except DiskFull as error:
            if self._how.own_place is None and Disk().writable(self._place.path) < _EMPTY:
                raise NotHere(f"no space for scratch copies: {error}") from None
            self._fail(number, branch, str(error))
        except RStoreError as error:
            self._fail(number, branch, str(error))
        except Exception as error:  # noqa: BLE001 - a fault of the engine is what a drill is there to find
            self._fail(number, branch, f"{type(error).__name__}: {error}")

    def _fail(self, number: int, branch: tuple[str, ...], actual: str) -> None:
        self._result.judged += 1
        self._result.fail(Failure(number, CARRIED_OUT, "no error", actual, "; ".join(branch)))

    def _note(self, index: int, notes: list[str]) -> None:
        here = self._result.steps[index]
        if notes and not here.summary:
            here.summary = notes[0]

    def _tick(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._total)
