"""The store that a replay goes into: the repair's own, another one, or one that is made for it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import STORE_CONF, STORE_SIZES, StoreConfig, sizes_of_store
from engine.dataclass import dataclass
from engine.errors import NotAStore
from engine.format import names
from engine.inspect import next_step
from engine.inspect.dump.replayed import HERE
from engine.inspect.store.survey import demand_store
from engine.log.derive import TopicQueue
from engine.repair.recover.recover import plan_recover

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.inspect.store.survey import StoreFiles
    from engine.repair.recover.plan import RecoverPlan

_BEHAVIOUR = (
    "message_delay_level",
    "enable_multi_dispatch",
    "enable_lmq",
    "enable_consume_queue_ext",
    "mapped_file_size_consume_queue_ext",
    "max_message_size",
    "message_index_enable",
)
"""Settings (fields of StoreConfig) that no file tells: another store gets those of the repair's own."""


@dataclass(frozen=True, slots=True)
class ReplayTarget:
    """Where a replay goes.

    Attributes:
        name: as `Run.target` has it.
        config: its settings; with the sizes that it will have.
        make: whether it is made first.
        recovery: what its start does; None when it is made.
    """

    name: str
    config: StoreConfig
    make: bool
    recovery: RecoverPlan | None

    @property
    def root(self) -> str:
        """Its directory."""
        return os.fspath(self.config.store_path_root_dir)

    @property
    def own(self) -> bool:
        """Whether it is the store that the repair is of."""
        return self.name == HERE

    @property
    def log_end(self) -> int:
        """Physical offset at which its log continues."""
        return 0 if self.recovery is None else self.recovery.state.max_offset

    @property
    def log_start(self) -> int:
        """Physical offset of its log's first byte."""
        return 0 if self.recovery is None else self.recovery.state.min_offset

    @property
    def next_offsets(self) -> dict[TopicQueue, int]:
        """The next queue offset of each of its queues."""
        queues = () if self.recovery is None else self.recovery.state.queues
        return {state.queue: state.max_offset for state in queues}


def target_name(root: str, into: Path | None) -> str:
    """How runs name a directory. `root`: of the repair's own store."""
    if into is None or os.path.realpath(into) == os.path.realpath(root):
        return HERE
    return os.path.realpath(into)


def other_store(disk: Disk, config: StoreConfig, into: Path | None) -> str | None:
    """The directory of another store that is there already; None: it isn't, or it is the repair's own.

    Raises:
        NotAStore: `config` names none. StorageError.
    """
    root = os.fspath(config.store_path_root_dir)
    demand_store(disk, config, root)
    name = target_name(root, into)
    if name == HERE:
        return None
    try:
        demand_store(disk, _settings(config, name, new=False), name)
    except NotAStore:
        return None
    return name


def look_at(disk: Disk, files: StoreFiles, name: str, *, resumes: bool, made: bool) -> ReplayTarget:
    """The target as it is; writes nothing.

    Args:
        disk: how files are reached.
        files: the store that the repair is of.
        name: of the target.
        resumes: whether a killed replay is resumed, which may have left the store open.
        made: whether that one was to make it.

    Raises:
        Refused: it has to be recovered first. NotAStore, CannotRepair, StorageError.
    """
    config = files.config
    if name != HERE:
        make = _is_new(disk, name, made=made)
        config = _settings(files.config, name, new=make)
        if make:
            return ReplayTarget(name, config, make=True, recovery=None)
    plan = plan_recover(disk, files if name == HERE else config)
    if plan.refusal is not None:
        raise plan.refusal
    if plan.changed and not resumes:
        raise next_step.needs_recovery(plan.files.config)
    return ReplayTarget(name, plan.files.config, make=False, recovery=plan)


def _is_new(disk: Disk, path: str, *, made: bool) -> bool:
    """Nothing is there, or what a killed replay has made so far: no segment yet."""
    if not disk.exists(path) or (disk.is_dir(path) and not disk.listdir(path)):
        return True
    log = os.path.join(path, names.COMMITLOG)
    return made and not (disk.exists(log) and disk.listdir(log))


def _settings(source: StoreConfig, path: str, *, new: bool) -> StoreConfig:
    base = StoreConfig() if new else sizes_of_store(Path(path) / STORE_CONF)
    fields = (*_BEHAVIOUR, *STORE_SIZES) if new else _BEHAVIOUR
    changes = {name: getattr(source, name) for name in fields}
    return replace(base, follow_links=source.follow_links).with_changes(
        store_path_root_dir=Path(path),
        store_path_commit_log=None,
        read_only_commit_log_store_paths=None,
        **changes,
    )
