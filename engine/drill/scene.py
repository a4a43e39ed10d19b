"""One state of a drill's store and all that is known of it; an interrupted step makes a scene of its own of each try.

A scene owns its directory: `fork` copies it, `close` removes it. What is known (the ledger, the damage done, the states
that are remembered) goes along with a copy and is its own from then on.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import field, replace
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.drill.backups import repository_of
from engine.drill.disk import DrillDisk
from engine.drill.files import copy_tree, remove_tree
from engine.drill.ledger import Clock, DrillLedger

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.drill.baseline import Baseline
    from engine.drill.content import Content
    from engine.drill.outcome import CommandOutcome
    from engine.drill.served import RefusedPut, Served
    from engine.log.results import PutResult
    from engine.store import MessageStore


@dataclass(slots=True)
class SceneDirectory:
    """Where a drill's scenes lie: numbered directories below one."""

    path: str
    keep: bool = False
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def new(self) -> str:
        """The path of a store that is not there yet."""
        return os.path.join(self.path, f"{next(self.numbers):04d}", "store")


@dataclass(slots=True)
class Scene:
    """See the module.

    Attributes:
        config: the store's settings; its root is this scene's directory.
        place: where further scenes go.
        ledger: what the drill has put.
        baseline: what was there before it; None for a store that the drill made.
        clock: gives the store times.
        hurt: ranges of the log (physical offset, end) that the drill itself has damaged.
        begin, cut: where commands left the log's first byte, and its end.
        used_ratio: what the disk seems to be used; None: the truth (a small file system of its own).
        usual_ratio: the same, when no script says otherwise: the machine's own disks are none of a drill's business.
        channel: no maps.
        states: what was remembered.
        branch: the interruptions that led here.
        outcome: of the last command.
        answers: to the last step's puts.
        refusals: what clients of the daemon were told in the last step instead.
        session: the open store; `disk`: what it is open on; `served`: the daemon around it.
    """

    config: StoreConfig
    place: SceneDirectory
    ledger: DrillLedger
    baseline: Baseline | None = None
    clock: Clock = field(default_factory=Clock)
    hurt: list[tuple[int, int]] = field(default_factory=list)
    begin: int | None = None
    cut: int | None = None
    used_ratio: float | None = None
    usual_ratio: float | None = None
    channel: bool = False
    states: dict[str, Content] = field(default_factory=dict)
    branch: tuple[str, ...] = ()
    outcome: CommandOutcome | None = None
    answers: list[PutResult] = field(default_factory=list)
    refusals: list[RefusedPut] = field(default_factory=list)
    session: MessageStore | None = None
    disk: DrillDisk | None = None
    served: Served | None = None

    def left_by(self, outcome: CommandOutcome) -> None:
        """A command has ended: where it left the log."""
        self.begin = self.begin if outcome.log_begin is None else outcome.log_begin
        self.cut = self.cut if outcome.log_end is None else outcome.log_end

    @property
    def root(self) -> str:
        """The store's directory."""
        return os.fspath(self.config.store_path_root_dir)

    def new_disk(self) -> DrillDisk:
        """A disk as this scene's: with its room, without a fault."""
        return DrillDisk(mapped=not self.channel, used_ratio=self.used_ratio)

    def fork(self, why: str | None = None, *, root: str | None = None) -> Scene:
        """A scene of its own on a copy of the store, or on what lies at `root` already."""
        if root is None:
            root = self.place.new()
            copy_tree(self.new_disk(), self.root, root)
            backups = repository_of(self.root)
            if os.path.isdir(backups):
                copy_tree(self.new_disk(), backups, repository_of(root))
        return replace(
            self,
            config=moved(self.config, root),
            ledger=self.ledger.copy(),
            baseline=None if self.baseline is None else self.baseline.copy(),
            clock=replace(self.clock),
            hurt=list(self.hurt),
            states=dict(self.states),
            branch=self.branch if why is None else (*self.branch, why),
            answers=[],
            refusals=[],
            session=None,
            served=None,
        )

    def close(self) -> None:
        """Remove the store, unless it is kept."""
        if self.served is not None:
            served, self.served = self.served, None
            served.stop()
        try:
            if self.session is not None:
                session, self.session = self.session, None
                session.close()
        finally:
            if not self.place.keep:
                remove_tree(os.path.dirname(self.root))


def moved(config: StoreConfig, root: str) -> StoreConfig:
    """The settings of a copy of the store at `root`."""
    from pathlib import Path

    return replace(config, store_path_root_dir=Path(root), given=config.given | {"store_path_root_dir"})
