"""Queues and index of a restored log: made by a recovery of the whole, as ever."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.errors import CannotRepair, DamageInTheMiddle, LogMissing, Refused
from engine.repair.change import carry_out
from engine.repair.recover.change import RecoverChange

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.errors import RStoreError
    from engine.files.disk import Disk


def make_queues(disk: Disk, config: StoreConfig, jobs: int | None) -> RStoreError | None:
    """Make them. Why they can't be made of the log as it was backed up; None: they are made.

    Raises:
        OutsideStore, CannotRepair, NoSpaceToSave: of what stands in the way here. StorageError.
    """
    try:
        carry_out(RecoverChange(whole=True, keep=False, jobs=jobs), disk, config)
    except (Refused, CannotRepair) as refusal:
        if _is_of_snapshot(config, refusal):
            return refusal
        raise
    return None


def _is_of_snapshot(config: StoreConfig, refusal: RStoreError) -> bool:
    """Whether it is about the log as it was backed up."""
    if isinstance(refusal, (DamageInTheMiddle, LogMissing)):
        return True
    directory = os.path.join(os.fspath(config.commit_log_paths[0]), "")
    return isinstance(refusal, CannotRepair) and (refusal.path or "").startswith(directory)
