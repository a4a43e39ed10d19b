"""What lies in a store directory: every file named and measured, nothing opened for writing, nothing created.

Sizes that nobody gave are inferred: the commit log's and the consume queue's from the most common file length, the
index's from their length, proved on their own entries (index_layout.py).
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import field, replace
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import DataIsAbsent, FormatError, NewerStore, NotAStore, RStoreError
from engine.files.entry import FileKind
from engine.files.listing import OddEntry, Oddness, SegmentFile, SegmentListing, is_lost_found, list_segments
from engine.files.written import is_zero
from engine.format import checkpoint, names
from engine.format.checkpoint import Checkpoint
from engine.format.index_file import IndexLayout
from engine.format.queue_unit import UNIT_SIZE
from engine.inspect.store import path_slips
from engine.inspect.store.dledger import DLedgerPlace, dledger_place, entry_segments
from engine.inspect.store.index_layout import infer_index_layout
from engine.inspect.store.newer import NOT_NEWER, ROCKSDB_QUEUES, Newer, as_its_broker_writes, is_rocksdb, newer_parts
from engine.inspect.store.odd import (
    AFTER_GAP,
    PASSED_OVER,
    QUEUE_EMPTY,
    STRAY,
    OddFile,
    in_places,
    instead,
    listed,
    moved_by_hand,
)
from engine.inspect.store.queue_rows import QueueRows
from engine.inspect.store.rocksdb_queues import RocksDBQueues
from engine.inspect.store.segment_size import settled_segment_size
from engine.inspect.store.tag_keys import indexes_tags
from engine.log.derive import TopicQueue
from engine.log.source import Segment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.files.entry import Entry


@dataclass(frozen=True, slots=True)
class QueueFiles:
    """The files of one consume queue, by offset (bytes). `source`: what they are read through where they are computed
    from RocksDB; None: files of the system."""

    queue: TopicQueue
    directory: str
    files: tuple[SegmentFile, ...]
    source: Disk | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class IndexName:
    """An index file: name, path, length in bytes; `whole` when the length is the setting's."""

    name: str
    path: str
    size: int
    whole: bool


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """A store as it lies on disk. `config` has its sizes settled. `rocksdb`: the queues in RocksDB, where they are
    read; those that have no files of their own, or files with fewer units, are among `queues`. `dledger`: where the
    entries are of one whose log is DLedger's; `log` has their files, too."""

    config: StoreConfig
    root: str
    abort: bool
    checkpoint: Checkpoint
    checkpoint_ok: bool
    log: tuple[Segment, ...]
    queues: tuple[QueueFiles, ...]
    index: tuple[IndexName, ...]
    odd: tuple[OddFile, ...]
    newer: Newer = NOT_NEWER
    rocksdb: RocksDBQueues | None = field(default=None, compare=False)
    dledger: DLedgerPlace | None = None

    @property
    def log_directories(self) -> tuple[str, ...]:
        """All directories that segments are read from."""
        return (*self.config.log_directories, *(() if self.dledger is None else self.dledger.data))

    @property
    def index_layout(self) -> IndexLayout:
        """Where things lie in this store's index files."""
        return IndexLayout(self.config.max_hash_slot_num, self.config.max_index_num)


def survey(disk: Disk, config: StoreConfig) -> StoreFiles:
    """Look at the store that `config` names.

    Raises:
        NotAStore: there is no store, or several brokers of a DLedger group have theirs in it.
        StorageError: a directory can't be read.
    """
    root = os.fspath(config.store_path_root_dir)
    entries = demand_store(disk, config, root)
    odd = list(in_places(disk, config, root, entries))
    log_dirs = [path for path in config.log_directories if disk.is_dir(path)]
    dledger = dledger_place(disk, config, root, [entry.name for entry in entries])
    entry_dirs = [] if dledger is None else [path for path in dledger.data if disk.is_dir(path)]
    queue_root = os.path.join(root, names.CONSUMEQUEUE)
    queue_dirs, odd_queues = queue_directories(disk, queue_root)
    only_topics = not odd_queues
    if not only_topics and is_rocksdb(disk, queue_root):
        odd_queues = []
    index_dir = os.path.join(root, names.INDEX)
    index_entries, odd_index = _index_entries(disk, index_dir)
    scanned = {directory: disk.scandir(directory) for _, directory in queue_dirs}
    config = _settle(disk, config, log_dirs + entry_dirs, scanned, index_entries)
    listing = list_segments(disk, log_dirs, config.mapped_file_size_commit_log)
    odd += odd_queues + odd_index + [_odd_log_entry(entry) for entry in listing.odd]
    queues = []
    for queue, directory in queue_dirs:
        files = list_segments(disk, [directory], config.mapped_file_size_consume_queue, scanned)
        odd += [listed(entry, movable=True) for entry in files.odd]
        held, empty = _without_far_ones(disk, files)
        odd += empty
        queues.append(QueueFiles(queue, directory, held))
    if config.enable_consume_queue_ext:
        odd += _odd_ext_files(disk, root, config.mapped_file_size_consume_queue_ext)
    size = IndexLayout(config.max_hash_slot_num, config.max_index_num).file_size
    point, point_ok = read_checkpoint(disk, os.path.join(root, names.CHECKPOINT))
    log = tuple(Segment(f.offset, f.size, f.path) for f in listing.files)
    where = None if dledger is None else dledger.where(root)
    if dledger is not None:
        log, more = _with_entries(disk, dledger, log, config.mapped_file_size_commit_log)
        odd += more
    paths = [segment.path for segment in log if not segment.in_entries]
    newer = newer_parts(disk, config, root, entries, paths, only_topics=only_topics, dledger=where)
    newer, rocksdb = _open_rocksdb(disk, root, newer)
    if rocksdb is not None:
        try:
            queues = _with_rocksdb(disk, config, queues, rocksdb)
        except RStoreError as error:
            newer, rocksdb = replace(newer, unread=error), None
    store = StoreFiles(
        config=config,
        root=root,
        abort=any(entry.name == names.ABORT for entry in entries),
        checkpoint=point,
        checkpoint_ok=point_ok,
        log=log,
        queues=tuple(queues),
        index=tuple(IndexName(e.name, e.path, e.size, e.size == size) for e in index_entries),
        odd=tuple(moved_by_hand(disk, root, one) for one in odd),
        newer=newer,
        rocksdb=rocksdb,
        dledger=dledger,
    )
    return replace(store, config=as_its_broker_writes(config, newer, index_tags=indexes_tags(disk, store)))


def log_of_now(disk: Disk, config: StoreConfig) -> tuple[Segment, ...]:
    """The files of a store's log alone, as they are now; `config` with its sizes settled. Raises as `survey`."""
    size, root = config.mapped_file_size_commit_log, os.fspath(config.store_path_root_dir)
    dledger = dledger_place(disk, config, root, disk.listdir(root))
    dirs = list(config.log_directories)
    listing = list_segments(disk, dirs if dledger is None else [path for path in dirs if disk.is_dir(path)], size)
    log = tuple(Segment(f.offset, f.size, f.path) for f in listing.files)
    return log if dledger is None else _with_entries(disk, dledger, log, size)[0]


def _with_entries(
    disk: Disk, dledger: DLedgerPlace, plain: tuple[Segment, ...], size: int
) -> tuple[tuple[Segment, ...], list[OddFile]]:
    """The log of a DLedger store: the plain segments before its first entry, and the files of the entries; the rest.

    What is at or after the first entry is read from the entries. Source: DLedgerCommitLog#getData.
    """
    entries, strays = entry_segments(disk, dledger, size)
    odd = [listed(entry, movable=False) for entry in strays]
    first = entries[0].offset if entries else None
    held = tuple(one for one in plain if first is None or one.offset < first)
    odd += [
        OddFile(one.path, one.size, "a plain segment where DLedger's entries are: brokers ignore it", movable=False)
        for one in plain[len(held) :]
    ]
    return held + entries, odd


def surveyed(disk: Disk, store: StoreConfig | StoreFiles) -> StoreFiles:
    """The survey of a store: as it is given, or made now where only settings are that name it. Raises as `survey`."""
    return store if isinstance(store, StoreFiles) else survey(disk, store)


def without_rocksdb(files: StoreFiles, error: RStoreError) -> StoreFiles:
    """The survey without the queues in RocksDB: the database is damaged, and can't be read to its end."""
    plain = tuple(queue for queue in files.queues if queue.source is None)
    return replace(files, queues=plain, newer=replace(files.newer, unread=error), rocksdb=None)


def _open_rocksdb(disk: Disk, root: str, newer: Newer) -> tuple[Newer, RocksDBQueues | None]:
    """The queues in RocksDB, if there are any; what they are not read for is noted."""
    if not newer.has(ROCKSDB_QUEUES):
        return newer, None
    if newer.queues_set_aside:
        aside = NewerStore("a repair set it aside: its own broker builds the queues again when it starts", path=root)
        return replace(newer, unread=aside), None
    if not newer.queue_database:
        no = FormatError("the settings have consume queues in RocksDB, and there is no database", path=root)
        return replace(newer, unread=no), None
    try:
        return newer, RocksDBQueues(disk, os.path.join(root, newer.queue_database))
    except RStoreError as error:
        return replace(newer, unread=error), None


def _with_rocksdb(
    disk: Disk, config: StoreConfig, queues: list[QueueFiles], rocksdb: RocksDBQueues
) -> list[QueueFiles]:
    """Queues of both kinds, by topic and id: of one that has both, its files if they have as many units."""
    held = {one.queue: one for one in queues}
    root = os.path.join(os.fspath(config.store_path_root_dir), names.CONSUMEQUEUE)
    for queue, ends in rocksdb.queues.items():
        plain = held.get(queue)
        if plain is not None and plain.files:
            rows = QueueRows(disk, plain)
            if rows.extent - rows.first >= ends.end - ends.first:
                continue
        directory = names.queue_directory(root, queue.topic, queue.queue_id)
        files = rocksdb.add_files(queue, directory, config.mapped_file_size_consume_queue)
        if files or ends.max is not None:
            held[queue] = QueueFiles(queue, directory, files, rocksdb.disk)
    return [held[queue] for queue in sorted(held)]


def read_checkpoint(disk: Disk, path: str) -> tuple[Checkpoint, bool]:
    """The checkpoint, and whether its file is whole. A missing or short one reads as zeros, as Apache's does."""
    entry = disk.look(path)
    if entry is None or not entry.is_file:
        return Checkpoint(), False
    try:
        return checkpoint.decode(disk.read_file(path, checkpoint.FILE_SIZE)), entry.size >= checkpoint.FILE_SIZE
    except FormatError:
        return Checkpoint(), False


def demand_store(disk: Disk, config: StoreConfig, root: str) -> tuple[Entry, ...]:
    """What is in the store's directory. Raises as `survey`, which asks for more."""
    directory = disk.look(root)
    if directory is not None and directory.kind is FileKind.ABSENT:
        raise DataIsAbsent(f"the store is {directory.what}", path=root, hint="mount the disk that it leads to")
    if directory is None or not directory.is_directory:
        plain = path_slips.meant_instead(disk, root)
        if plain is not None:
            raise path_slips.refusal(config, path_slips.ROOT, root, plain)
        raise NotAStore("no store here", path=root, hint="name one with --store, or make one with: rstore init")
    entries = disk.scandir(root)
    present = {entry.name for entry in entries}
    if not present & {names.COMMITLOG, names.CONSUMEQUEUE, names.CHECKPOINT, names.ABORT} and not any(
        disk.is_dir(os.fspath(p)) for p in config.commit_log_paths
    ):
        slip = path_slips.slip_in_a_path(disk, config)
        if slip is not None:
            raise slip
        raise NotAStore("no store here", path=root, hint="name one with --store, or make one with: rstore init")
    return entries


def _scan(disk: Disk, directory: str) -> tuple[Entry, ...]:
    """What is in a directory, but for what its file system keeps there."""
    entries = disk.scandir(directory) if disk.is_dir(directory) else ()
    return tuple(entry for entry in entries if not is_lost_found(entry))


def queue_directories(disk: Disk, root: str) -> tuple[list[tuple[TopicQueue, str]], list[OddFile]]:
    """The directories of queues below `root`, by topic and id, and what else is among them."""
    directories: list[tuple[TopicQueue, str]] = []
    odd: list[OddFile] = []
    for topic in sorted(_scan(disk, root), key=lambda e: e.name):
        if topic.is_file:
            odd.append(
                OddFile(topic.path, topic.size, "a file among the topic directories: brokers ignore it", movable=False)
            )
            continue
        if not topic.is_directory:
            odd.append(instead(topic, FileKind.DIRECTORY))
            continue
        for queue in sorted(_scan(disk, topic.path), key=lambda e: e.name):
            queue_id = names.queue_id_of(queue.name)
            if queue_id is None:
                odd.append(
                    OddFile(queue.path, queue.size, "its name is not a queue id: brokers ignore it", movable=False)
                )
            elif queue.is_directory:
                directories.append((TopicQueue(topic.name, queue_id), queue.path))
            else:
                odd.append(instead(queue, FileKind.DIRECTORY))
    return directories, odd


def _without_far_ones(disk: Disk, listing: SegmentListing) -> tuple[tuple[SegmentFile, ...], list[OddFile]]:
    """A queue's files, and those at its end that hold nothing while files before them are missing.

    They say nothing of the queue: a file is made when the one before it is full.
    """
    held = list(listing.files)
    empty: list[OddFile] = []
    while len(held) > 1 and held[-1].offset - held[0].offset != (len(held) - 1) * listing.file_size:
        last = held[-1]
        if not is_zero(disk, last.path):
            break
        empty.append(OddFile(last.path, last.size, AFTER_GAP, movable=True, code=QUEUE_EMPTY))
        held.pop()
    return tuple(held), empty


def _index_entries(disk: Disk, directory: str) -> tuple[list[Entry], list[OddFile]]:
    entries: list[Entry] = []
    odd: list[OddFile] = []
    for entry in sorted(_scan(disk, directory), key=lambda e: e.name):
        if not names.is_index_name(entry.name):
            odd.append(OddFile(entry.path, entry.size, "not the name of an index file", movable=True, code=STRAY))
        elif entry.is_file:
            entries.append(entry)
        else:
            odd.append(instead(entry, FileKind.FILE))
    return entries, odd


def _odd_ext_files(disk: Disk, root: str, size: int) -> list[OddFile]:
    """What is no extension file among them: a crash while one is made leaves an empty one.

    One of another length stays: it is more likely that the setting is wrong.
    """
    directories, odd = queue_directories(disk, os.path.join(root, names.CONSUMEQUEUE_EXT))
    strays = (Oddness.EMPTY, Oddness.STRANGE_NAME, Oddness.NOT_A_FILE, Oddness.ABSENT)
    return [one for one in odd if one.code != PASSED_OVER] + [
        listed(entry, movable=True)
        for _, directory in directories
        for entry in list_segments(disk, [directory], size).odd
        if entry.why in strays
    ]


def _odd_log_entry(entry: OddEntry) -> OddFile:
    """What is no segment in the commit log's directory: only what holds no data of the log may be set aside."""
    return listed(entry, movable=entry.why in (Oddness.EMPTY, Oddness.STRANGE_NAME, Oddness.NOT_A_FILE))


def _settle(
    disk: Disk,
    config: StoreConfig,
    log_dirs: list[str],
    queues: Mapping[str, Sequence[Entry]],
    index_entries: list[Entry],
) -> StoreConfig:
    """The config with the sizes that nobody gave, as the files say."""
    changes: dict[str, int] = {}
    size = settled_segment_size(disk, config, log_dirs)
    if size != config.mapped_file_size_commit_log:
        changes["mapped_file_size_commit_log"] = size
    if "mapped_file_size_consume_queue" not in config.given:
        common = _common_size(entry for entries in queues.values() for entry in entries)
        if common is not None and common % UNIT_SIZE == 0:
            changes["mapped_file_size_consume_queue"] = common
    if not config.given & {"max_hash_slot_num", "max_index_num"} and index_entries:
        layout = infer_index_layout(disk, index_entries)
        if layout is not None:
            changes["max_hash_slot_num"], changes["max_index_num"] = layout.slots, layout.entries
    given = config.given
    return config.with_changes(**changes).as_given(given) if changes else config


def _common_size(entries: object) -> int | None:
    """The most common length of files with a segment's name; of equally common ones the one that names agree with."""
    sizes: Counter[int] = Counter()
    offsets: list[int] = []
    for entry in entries:  # type: ignore[attr-defined]
        offset = names.segment_offset(entry.name)
        if entry.is_file and offset is not None:
            offsets.append(offset)
            if entry.size:
                sizes[entry.size] += 1
    if not sizes:
        return None
    return max(sizes, key=lambda size: (sizes[size], sum(1 for o in offsets if o % size == 0), size))
