"""What lies in a store directory: every file named and measured, nothing opened for writing, nothing created.

Sizes that nobody gave are inferred: the commit log's and the consume queue's from the most common file length, the
index's from its length at Apache's ratio of four entries a slot, proved on the first file's own entries.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.errors import CannotMend, FormatError, NotAStore, StorageError
from engine.files.listing import OddEntry, Oddness, SegmentFile, list_segments, parse_segment_name
from engine.format import checkpoint, names
from engine.format.checkpoint import Checkpoint
from engine.format.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexLayout, decode_entry, decode_header
from engine.format.queue_unit import UNIT_SIZE
from engine.log.derive import TopicQueue
from engine.log.source import Segment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.config import StoreConfig
    from engine.files.disk import Disk, Entry

_INDEX_RATIO = 4


@dataclass(frozen=True, slots=True)
class OddFile:
    """Something in the store that is no store file. `movable`: a start may set it aside without losing data."""

    path: str
    size: int
    why: str
    movable: bool


@dataclass(frozen=True, slots=True)
class QueueFiles:
    """The files of one consume queue, by offset (bytes)."""

    queue: TopicQueue
    directory: str
    files: tuple[SegmentFile, ...]


@dataclass(frozen=True, slots=True)
class IndexName:
    """An index file: name, path, length in bytes; `whole` when the length is the setting's."""

    name: str
    path: str
    size: int
    whole: bool


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """A store as it lies on disk. `config` has its sizes settled."""

    config: StoreConfig
    root: str
    abort: bool
    checkpoint: Checkpoint
    checkpoint_ok: bool
    log: tuple[Segment, ...]
    queues: tuple[QueueFiles, ...]
    index: tuple[IndexName, ...]
    odd: tuple[OddFile, ...]

    @property
    def index_layout(self) -> IndexLayout:
        """Where things lie in this store's index files."""
        return IndexLayout(self.config.max_hash_slot_num, self.config.max_index_num)


def survey(disk: Disk, config: StoreConfig) -> StoreFiles:
    """Look at the store that `config` names.

    Raises:
        NotAStore: there is no store, or a kind that this engine doesn't know (DLedger, RocksDB).
        CannotMend: index files whose slot count can't be inferred and wasn't given.
        StorageError: a directory can't be read.
    """
    root = os.fspath(config.store_path_root_dir)
    _demand_store(disk, config, root)
    log_dirs = list(config.log_directories)
    queue_root = os.path.join(root, names.CONSUMEQUEUE)
    queue_dirs, odd = _queue_directories(disk, queue_root)
    index_dir = os.path.join(root, names.INDEX)
    index_entries, odd_index = _index_entries(disk, index_dir)
    scanned = {directory: disk.scandir(directory) for _, directory in queue_dirs}
    config = _settle(disk, config, log_dirs, scanned, index_entries)
    listing = list_segments(disk, log_dirs, config.mapped_file_size_commit_log)
    odd += odd_index + [_odd_log_entry(disk, entry) for entry in listing.odd]
    queues = []
    for queue, directory in queue_dirs:
        files = list_segments(disk, [directory], config.mapped_file_size_consume_queue, scanned)
        odd += [OddFile(o.path, o.size, o.why.value, movable=True) for o in files.odd]
        queues.append(QueueFiles(queue, directory, files.files))
    if config.enable_consume_queue_ext:
        odd += _odd_ext_files(disk, root, config.mapped_file_size_consume_queue_ext)
    size = IndexLayout(config.max_hash_slot_num, config.max_index_num).file_size
    point, point_ok = read_checkpoint(disk, os.path.join(root, names.CHECKPOINT))
    return StoreFiles(
        config=config,
        root=root,
        abort=disk.exists(os.path.join(root, names.ABORT)),
        checkpoint=point,
        checkpoint_ok=point_ok,
        log=tuple(Segment(f.offset, f.size, f.path) for f in listing.files),
        queues=tuple(queues),
        index=tuple(IndexName(e.name, e.path, e.size, e.size == size) for e in index_entries),
        odd=tuple(odd),
    )


def read_checkpoint(disk: Disk, path: str) -> tuple[Checkpoint, bool]:
    """The checkpoint, and whether its file is whole. A missing or short one reads as zeros, as Apache's does."""
    if not disk.exists(path):
        return Checkpoint(), False
    try:
        return checkpoint.decode(disk.read_file(path, checkpoint.FILE_SIZE)), disk.stat(
            path
        ).size >= checkpoint.FILE_SIZE
    except FormatError:
        return Checkpoint(), False


def _demand_store(disk: Disk, config: StoreConfig, root: str) -> None:
    if not disk.is_dir(root):
        raise NotAStore("no store here", path=root, hint="name one with --store, or make one with: rstore init")
    present = set(disk.listdir(root))
    if not present & {names.COMMITLOG, names.CONSUMEQUEUE, names.CHECKPOINT, names.ABORT} and not any(
        disk.is_dir(os.fspath(p)) for p in config.commit_log_paths
    ):
        raise NotAStore("no store here", path=root, hint="name one with --store, or make one with: rstore init")
    if any(name.startswith("dledger-") for name in present) or config.enable_d_leger_commit_log:
        raise NotAStore(
            "a DLedger store, which keeps its log in Raft entries", path=root, hint="recover it with its group"
        )
    if any(name.startswith(("consumequeue_r", "rocksdb")) for name in present):
        raise NotAStore("a store with RocksDB consume queues", path=root, hint="use a 5.x broker")


def _scan(disk: Disk, directory: str) -> tuple[Entry, ...]:
    return disk.scandir(directory) if disk.exists(directory) else ()


def _queue_directories(disk: Disk, root: str) -> tuple[list[tuple[TopicQueue, str]], list[OddFile]]:
    found: list[tuple[TopicQueue, str]] = []
    odd: list[OddFile] = []
    for topic in sorted(_scan(disk, root), key=lambda e: e.name):
        if topic.is_file:
            odd.append(OddFile(topic.path, topic.size, "a file among the topics: Apache passes it over", movable=False))
            continue
        if not topic.is_directory:
            odd.append(OddFile(topic.path, topic.size, "no topic's directory: passed over", movable=False))
            continue
        for queue in sorted(disk.scandir(topic.path), key=lambda e: e.name):
            queue_id = names.queue_id_of(queue.name)
            if queue_id is not None and queue.is_directory:
                found.append((TopicQueue(topic.name, queue_id), queue.path))
            else:
                odd.append(OddFile(queue.path, queue.size, "no queue id: Apache passes it over", movable=False))
    return found, odd


def _index_entries(disk: Disk, directory: str) -> tuple[list[Entry], list[OddFile]]:
    found: list[Entry] = []
    odd: list[OddFile] = []
    for entry in sorted(_scan(disk, directory), key=lambda e: e.name):
        if entry.is_file and names.is_index_name(entry.name):
            found.append(entry)
        else:
            odd.append(OddFile(entry.path, entry.size, "no index file's name", movable=True))
    return found, odd


def _odd_ext_files(disk: Disk, root: str, size: int) -> list[OddFile]:
    """What is no extension file among them: a crash while one is made leaves an empty one.

    One of another length stays: it is more likely that the setting is wrong.
    """
    directories, _ = _queue_directories(disk, os.path.join(root, names.CONSUMEQUEUE_EXT))
    strays = (Oddness.EMPTY, Oddness.STRANGE_NAME, Oddness.NOT_A_FILE)
    return [
        OddFile(odd.path, odd.size, odd.why.value, movable=True)
        for _, directory in directories
        for odd in list_segments(disk, [directory], size).odd
        if odd.why in strays
    ]


def _odd_log_entry(disk: Disk, entry: OddEntry) -> OddFile:
    """What is no segment in the commit log's directory: only what holds no data of the log may be set aside."""
    stray = entry.why in (Oddness.EMPTY, Oddness.STRANGE_NAME, Oddness.NOT_A_FILE)
    mounted = os.path.basename(entry.path) == "lost+found" and disk.is_mount_point(os.path.dirname(entry.path))
    return OddFile(entry.path, entry.size, entry.why.value, movable=stray and not mounted)


def _settle(
    disk: Disk,
    config: StoreConfig,
    log_dirs: list[str],
    queues: Mapping[str, Sequence[Entry]],
    index_entries: list[Entry],
) -> StoreConfig:
    """The config with the sizes that nobody gave, as the files say."""
    changes: dict[str, int] = {}
    if "mapped_file_size_commit_log" not in config.given:
        size = _common_size(entry for d in log_dirs for entry in _scan(disk, d))
        if size is not None and size >= 4096:
            changes["mapped_file_size_commit_log"] = size
    if "mapped_file_size_consume_queue" not in config.given:
        size = _common_size(entry for entries in queues.values() for entry in entries)
        if size is not None and size % UNIT_SIZE == 0:
            changes["mapped_file_size_consume_queue"] = size
    if not config.given & {"max_hash_slot_num", "max_index_num"} and index_entries:
        layout = _infer_index_layout(disk, index_entries)
        changes["max_hash_slot_num"], changes["max_index_num"] = layout.slots, layout.entries
    given = config.given
    return config.with_changes(**changes).as_given(given) if changes else config


def _common_size(entries: object) -> int | None:
    """The most common length of files with a segment's name; of equally common ones the one that names agree with."""
    sizes: Counter[int] = Counter()
    offsets: list[int] = []
    for entry in entries:  # type: ignore[attr-defined]
        offset = parse_segment_name(entry.name)
        if entry.is_file and offset is not None:
            offsets.append(offset)
            if entry.size:
                sizes[entry.size] += 1
    if not sizes:
        return None
    return max(sizes, key=lambda size: (sizes[size], sum(1 for o in offsets if o % size == 0), size))


def _infer_index_layout(disk: Disk, entries: list[Entry]) -> IndexLayout:
    for size, _ in Counter(e.size for e in entries if e.size).most_common():
        slots, rest = divmod(size - HEADER_SIZE, SLOT_SIZE + _INDEX_RATIO * ENTRY_SIZE)
        if rest == 0 and slots > 0:
            return IndexLayout(slots, slots * _INDEX_RATIO)
        for entry in entries:
            if entry.size == size and (found := _search_layout(disk, entry)) is not None:
                return found
    raise CannotMend(
        "the index files' slot count can't be told from their length",
        path=os.path.dirname(entries[0].path),
        hint="give maxHashSlotNum and maxIndexNum in a broker.conf (-c)",
    )


def _search_layout(disk: Disk, entry: Entry) -> IndexLayout | None:
    """Try every slot count that the length allows, until the first entries and their slots agree with it."""
    reader = disk.open_reader(entry.path)
    try:
        header = decode_header(reader.read(0, HEADER_SIZE))
        room = entry.size - HEADER_SIZE
        first = (room // SLOT_SIZE) % (ENTRY_SIZE // SLOT_SIZE)
        for slots in range(first or ENTRY_SIZE // SLOT_SIZE, min(room // SLOT_SIZE, 20_000), ENTRY_SIZE // SLOT_SIZE):
            layout = IndexLayout(slots, (room - slots * SLOT_SIZE) // ENTRY_SIZE)
            if layout.file_size == entry.size and 1 < header.index_count <= layout.entries:
                one = decode_entry(reader.read(layout.entry_position(1), ENTRY_SIZE), 0)
                slot = reader.read(layout.slot_position(one.key_hash % slots), SLOT_SIZE) if one.key_hash >= 0 else b""
                newest = int.from_bytes(slot, "big")
                if (
                    one.physical_offset == header.begin_phy_offset
                    and one.previous == 0
                    and 0 < newest < header.index_count
                ):
                    return layout
    except (FormatError, StorageError):
        return None
    finally:
        reader.close()
    return None
