"""The files of batch queues as a repair sees them: by place, whatever is in them, and what is no file of theirs.

A file has the setting's length (mapperFileSizeBatchConsumeQueue) and the place of its first byte as its name. One of
another length gets the right one: what it lacks is derived from the log. Whatever else lies in a queue's directory is
set aside, as no broker starts over it (MappedFileQueue#doLoad).
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import FormatError
from engine.files.entry import FileKind
from engine.files.listing import is_lost_found
from engine.files.written import written_end
from engine.format import names
from engine.format.batch_unit import BATCH_UNIT_SIZE, batch_unit_dtype, decode_many
from engine.format.numbers import INT_MAX, read_java_int
from engine.inspect.store.batch_topics import batch_by_attribute
from engine.inspect.store.odd import SIZE, STRAY, OddFile, absent, moved_by_hand
from engine.inspect.store.survey import queue_directories
from engine.log.derive import TopicQueue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.files.entry import Entry
    from engine.inspect.store.survey import StoreFiles

SIZE_KEY = "mapperFileSizeBatchConsumeQueue"
_OTHER_KIND = "consume queues of a topic whose queue type is BatchCQ"
DEFAULT_SIZE = 300_000 * BATCH_UNIT_SIZE
"""Source: MessageStoreConfig#mapperFileSizeBatchConsumeQueue."""


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file of a batch queue: where, number of its first unit, bytes that it has."""

    path: str
    first: int
    size: int


@dataclass(frozen=True, slots=True)
class HeldQueue:
    """One batch queue on disk. `files`: by place; `file_units`: units of a whole one."""

    queue: TopicQueue
    directory: str
    files: tuple[HeldFile, ...]
    file_units: int

    @property
    def file_size(self) -> int:
        """Bytes of a whole file."""
        return self.file_units * BATCH_UNIT_SIZE

    @property
    def first(self) -> int:
        """Number of its first unit, 0 without files."""
        return self.files[0].first if self.files else 0

    def path_of(self, first: int) -> str:
        """The file that begins with a unit."""
        return os.path.join(self.directory, names.segment_name(first * BATCH_UNIT_SIZE))

    def read(self, disk: Disk, start: int, end: int) -> NDArray[np.void]:
        """Units [start, end): batch_unit_dtype()[end − start], zeros where no file has any. Raises StorageError."""
        import numpy as np

        units = np.zeros(end - start, dtype=batch_unit_dtype())
        for file in self.files:
            held = min(file.size // BATCH_UNIT_SIZE, self.file_units)
            low, high = max(start, file.first), min(end, file.first + held)
            if low < high:
                at, length = (low - file.first) * BATCH_UNIT_SIZE, (high - low) * BATCH_UNIT_SIZE
                reader = disk.open_reader(file.path)
                try:
                    units[low - start : high - start] = decode_many(reader.read(at, length))
                finally:
                    reader.close()
        return units

    def extent(self, disk: Disk) -> int:
        """Number after the last unit of which a byte is not zero; `first` without one. Raises StorageError."""
        for file in reversed(self.files):
            reader = disk.open_reader(file.path)
            try:
                last = written_end(reader, 0, min(file.size, self.file_size))
            finally:
                reader.close()
            if last:
                return file.first - (-last // BATCH_UNIT_SIZE)
        return self.first


@dataclass(frozen=True, slots=True)
class HeldBatches:
    """All batch queues of a store, by topic and id.

    `root`: their directory; `odd`: what is none of their files; `file_units`: units of a whole one.
    """

    root: str
    queues: tuple[HeldQueue, ...]
    odd: tuple[OddFile, ...]
    file_units: int

    def absent(self, queue: TopicQueue) -> HeldQueue:
        """A queue that has no directory."""
        return HeldQueue(queue, names.queue_directory(self.root, queue.topic, queue.queue_id), (), self.file_units)


def batches_held(disk: Disk, files: StoreFiles) -> HeldBatches:
    """Look at the batch queues of a store. Raises StorageError."""
    base = os.path.join(files.root, names.BATCHCONSUMEQUEUE)
    directories, odd = queue_directories(disk, base) if disk.is_dir(base) else ([], [])
    entries = {directory: disk.scandir(directory) for _, directory in directories}
    units = file_size(files.config, [entry for some in entries.values() for entry in some]) // BATCH_UNIT_SIZE
    queues: list[HeldQueue] = []
    for queue, directory in directories:
        held: list[HeldFile] = []
        for entry in sorted(entries[directory], key=lambda one: one.name):
            if is_lost_found(entry):
                continue
            stray = _stray(entry, units * BATCH_UNIT_SIZE)
            if stray is not None:
                odd.append(stray)
            else:
                offset = names.segment_offset(entry.name) or 0
                held.append(HeldFile(entry.path, offset // BATCH_UNIT_SIZE, entry.size))
        queues.append(HeldQueue(queue, directory, tuple(held), units))
    return HeldBatches(base, tuple(queues), tuple(moved_by_hand(disk, files.root, one) for one in odd), units)


def with_batch_queues(disk: Disk, files: StoreFiles, held: HeldBatches) -> StoreFiles:
    """The store with what is odd among the files of its batch queues; without plain queues of such topics.

    A broker starts only where each topic has queues of the kind that its attribute in topics.json says
    (ConsumeQueueStore#queueTypeShouldBe): those of the other kind are set aside. Raises StorageError.
    """
    topics = files.newer.batch_topics
    plain = sorted(
        {one.queue.topic for one in files.queues if one.queue.topic in topics} & batch_by_attribute(disk, files.root)
    )
    paths = [os.path.join(files.root, names.CONSUMEQUEUE, topic) for topic in plain]
    odd = [moved_by_hand(disk, files.root, OddFile(path, 0, _OTHER_KIND, movable=True, code=STRAY)) for path in paths]
    queues = tuple(one for one in files.queues if one.queue.topic not in topics)
    return replace(files, queues=queues, odd=(*files.odd, *held.odd, *odd))


def file_size(config: StoreConfig, entries: list[Entry]) -> int:
    """Bytes of a file: as the setting says, else as most files are long, else the default."""
    given = config.other.get(SIZE_KEY)
    if given is not None:
        try:
            return _whole(max(1, read_java_int(given.strip())))
        except ValueError:
            raise FormatError(f"{SIZE_KEY} is {given[:20]!r}, no number of bytes") from None
    sizes = Counter(
        entry.size
        for entry in entries
        if entry.is_file
        and entry.size
        and not entry.size % BATCH_UNIT_SIZE
        and entry.size <= INT_MAX
        and names.segment_offset(entry.name) is not None
    )
    offsets = [names.segment_offset(entry.name) or 0 for entry in entries if entry.is_file]
    fits = {size: sum(1 for offset in offsets if not offset % size) for size in sizes}
    return max(sizes, key=lambda size: (sizes[size], fits[size], size), default=DEFAULT_SIZE)


def _whole(size: int) -> int:
    """As MessageStoreConfig#getMapperFileSizeBatchConsumeQueue rounds it."""
    return -(-size // BATCH_UNIT_SIZE) * BATCH_UNIT_SIZE


def _stray(entry: Entry, size: int) -> OddFile | None:
    """What is no file of a queue."""
    offset = names.segment_offset(entry.name)
    if entry.kind is FileKind.ABSENT and offset is not None:
        return absent(entry.path, entry.what)
    if not entry.is_file:
        return OddFile(entry.path, entry.size, f"{entry.what}, not a file", movable=True, code=STRAY)
    if offset is None:
        return OddFile(entry.path, entry.size, "a name that is not 20 digits", movable=True, code=STRAY)
    if offset % size:
        return OddFile(
            entry.path, entry.size, "a name that is not a multiple of the file size", movable=True, code=SIZE
        )
    return None
