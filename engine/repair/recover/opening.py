"""What becomes of a store that is about to be opened: planned by `plan_recover`, carried out by `apply`, as ever.

One function for whoever opens a store: the daemon's start and a slave's, the pipeline and drills (`AS_NEEDED`), a put
from the command line (`AS_IT_IS`), a replay, whose plan was made and shown before (`plan`).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from engine.errors import DiskFull, NoSpaceToSave
from engine.inspect.next_step import needs_recovery
from engine.repair.recover.apply import apply
from engine.repair.recover.log_apply import take_blank_away
from engine.repair.recover.not_dispatched import left_to_dispatch
from engine.repair.recover.pieces import touched
from engine.repair.recover.recover import plan_recover
from engine.seals.directory import remove_seals_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.log.state import StoreState
    from engine.repair.recover.plan import RecoverPlan


class Policy(enum.Enum):
    """How much may be changed before a store is open."""

    AS_NEEDED = enum.auto()
    """All that a recovery does, unless it would lose data."""
    AS_IT_IS = enum.auto()
    """Nothing but what dispatch does once the store is open: a store that needs more is refused."""


def recover_for_open(
    disk: Disk,
    config: StoreConfig,
    policy: Policy = Policy.AS_NEEDED,
    *,
    plan: RecoverPlan | None = None,
    tell: Callable[[RecoverPlan, str | None], None] | None = None,
) -> tuple[StoreState, StoreConfig]:
    """Recover the store that `config` names: normal or abnormal as the abort file says. The caller holds its lock.

    Args:
        disk: how files are reached.
        config: names the store.
        policy: how much may be changed.
        plan: one that was made before, under the same lock; it is carried out as it is.
        tell: gets what was planned, once it was carried out, and where what went was saved (None: nowhere).

    Returns:
        what the store's parts start from, and its settings with what its files show.

    Raises:
        Refused: data would be lost, or `policy` does not allow what is needed. CannotRepair, StorageError. DiskFull,
        NoSpaceToSave: there is no space for what has to be done before the store can be opened.
    """
    planned = plan or plan_recover(disk, config, locked=True)
    saved = None
    if policy is Policy.AS_IT_IS and (planned.refusal is not None or planned.changed):
        opened = _left_to_dispatch(disk, planned, planned.refusal or needs_recovery(planned.files.config))
    else:
        try:
            remove_seals_of(disk, planned.files.config, lambda: (path for path, _ in touched(disk, planned)))
            done = apply(disk, planned, command="start", clean=False)
            opened, saved = (done.state, planned.files.config), done.salvage
        except (DiskFull, NoSpaceToSave) as full:
            if plan is not None or policy is Policy.AS_IT_IS:
                raise
            planned = plan_recover(disk, config, locked=True)  # what was written meanwhile is right
            opened = _left_to_dispatch(disk, planned, full)
    if tell is not None:
        tell(planned, saved)
    return opened


def _left_to_dispatch(disk: Disk, plan: RecoverPlan, otherwise: Exception) -> tuple[StoreState, StoreConfig]:
    """The store as it is, where dispatch does the rest; raises `otherwise` where it can't."""
    state = None if plan.refusal is not None else left_to_dispatch(disk, plan)
    if state is None:
        raise otherwise
    take_blank_away(disk, plan)
    return state, plan.files.config
