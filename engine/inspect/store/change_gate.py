"""Which changes a store of RocketMQ 5 takes: decided by its parts and by the kind of change, here alone.

`KEPT_RIGHT` has a row a part (the constants of engine.inspect.store.newer) with the kinds of change that keep it right:
after the change, what the part says is still true of the log, or its own broker makes it true when it starts. A change
is refused, before anything of it is planned, when the store has a part whose row does not name its kind; a part without
a row refuses all. So who teaches a repair a part adds the kind to the part's row, with the proof in the same commit.

Each `Change` (engine.repair.change) has its kind; an open store has `PUT` or `SERVE`. What a repair needs to know of a
part beyond that it is there is not decided here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from engine.errors import NewerStore
from engine.files.listing import list_segments
from engine.inspect.next_step import plain_store
from engine.inspect.store.dledger import dledger_place
from engine.inspect.store.newer import (
    BATCH_QUEUES,
    CONTROLLER,
    DLEDGER,
    FILES,
    PROPERTY_CRC,
    PROPERTY_CRC_FORCED,
    ROCKSDB_CONFIG,
    ROCKSDB_QUEUES,
    TIMER,
    Newer,
    NewerPart,
    newer_parts,
)
from engine.inspect.store.segment_size import settled_segment_size

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk


class ChangeKind(Enum):
    """What a change does to a store; the value is its name in a sentence."""

    LOG = "a repair of the log by rstore"
    """recover, truncate: the log ends elsewhere or is bridged; queues, index and checkpoint are made to agree."""
    QUEUES = "a rebuild of queues and index by rstore"
    """reindex: the log stays as it is."""
    EXPIRY = "the deletion of segments by rstore"
    """expire: the log begins elsewhere."""
    TABLES = "a rebuild of config/ by rstore"
    """rebuild-config: lost tables are made again."""
    CONFIG = "a change of config/ by rstore"
    """offsets set, config restore."""
    UNDO = "an undo by rstore"
    """undo: all that a repair changed is as before."""
    PRUNE = "the removal of what repairs saved by rstore"
    """salvage prune: files of rstore alone."""
    SEAL = "the making of seals by rstore"
    """seal: files of rstore alone."""
    HEAL = "a heal by rstore"
    """heal: damaged ranges of the log are filled in, then as LOG."""
    ROLE = "a change of the store's role by rstore"
    """rewind, promote: as LOG, by what another broker has, and consumer offsets."""
    PUT = "a put by rstore"
    """put, salvage replay, pipeline import: as LOG, and new messages."""
    SERVE = "rstore's daemon"
    """serve, replicate: as PUT, and tables of config/, deliveries, retention."""


_OF_THE_LOG = frozenset({ChangeKind.LOG, ChangeKind.UNDO, ChangeKind.PRUNE, ChangeKind.SEAL})
_OF_TABLES = frozenset({ChangeKind.TABLES, ChangeKind.CONFIG})
_CLOSED = _OF_THE_LOG | _OF_TABLES | {ChangeKind.QUEUES, ChangeKind.EXPIRY}
_OPENED = _CLOSED | {ChangeKind.PUT, ChangeKind.SERVE}

KEPT_RIGHT: Mapping[str, frozenset[ChangeKind]] = MappingProxyType(
    {
        TIMER: _OF_THE_LOG | _OF_TABLES | {ChangeKind.PUT},  # what is put waits for no time
        CONTROLLER: _OF_THE_LOG | _OF_TABLES,
        FILES: _OPENED,  # an empty timer wheel, empty databases, tables that name queue offsets
        PROPERTY_CRC: _OPENED,  # bridges and puts have one; other records are as they were written
        PROPERTY_CRC_FORCED: _CLOSED,  # a repair of the log looks for records that its broker would end the log at
        ROCKSDB_QUEUES: _OF_THE_LOG,  # set aside where they are not those of the log, and built again by its broker
        ROCKSDB_CONFIG: _OF_THE_LOG,
        BATCH_QUEUES: _CLOSED - {ChangeKind.CONFIG},
    }
)
"""By part, the kinds of change that keep it right."""


def is_kept_right(part: NewerPart, kind: ChangeKind) -> bool:
    """Whether such a change keeps this part right."""
    return kind in KEPT_RIGHT.get(part.what, frozenset())


def is_repaired_here(part: NewerPart) -> bool:
    """Whether repairs make this part right again, or need not: not what its broker makes again."""
    return is_kept_right(part, ChangeKind.LOG) and part.what not in (ROCKSDB_QUEUES, ROCKSDB_CONFIG)


def hindering(newer: Newer, kind: ChangeKind) -> Newer:
    """The parts for which such a change is refused: false when there is none."""
    parts = tuple(part for part in newer.parts if not is_kept_right(part, kind))
    return Newer(parts, newer.batch_topics)


def refuse_open(disk: Disk, config: StoreConfig, kind: ChangeKind) -> None:
    """Before a directory is opened to be changed; the segments that it goes by are those of a survey.

    Raises:
        NewerStore: it holds what such a change does not keep right. NotAStore: several brokers of a DLedger group.
        StorageError.
    """
    root = os.fspath(config.store_path_root_dir)
    if not disk.is_dir(root):
        return
    entries = disk.scandir(root)
    dledger = dledger_place(disk, config, root, [entry.name for entry in entries])
    directories = [path for path in config.log_directories if disk.is_dir(path)]
    size = settled_segment_size(disk, config, directories)
    segments = list_segments(disk, directories, size).files
    paths = [segment.path for segment in segments]
    where = None if dledger is None else dledger.where(root)
    refuse_change(root, newer_parts(disk, config, root, entries, paths, dledger=where), kind)


def refuse_change(root: str, newer: Newer, kind: ChangeKind) -> None:
    """Raises NewerStore when the store has a part that such a change does not keep right: called before a plan."""
    parts = hindering(newer, kind)
    if parts:
        raise NewerStore(
            f"{parts.described}, which {kind.value} does not keep right",
            path=root,
            hint=_hands_off(root, parts),
        )


def _hands_off(root: str, newer: Newer) -> str:
    if newer.has(DLEDGER):
        return (
            "status, check and dump read it; its own broker recovers it when it starts; for a plain store with its "
            f"messages: {plain_store(root)}"
        )
    return "status, check and dump read it; its own 5.x broker recovers it when it starts"
