"""All consume queues of an open store, by topic and queue id (Apache consumeQueueTable).

A queue that recovery knows is opened when it is first used: a store may have tens of thousands. Its positions are known
before, from recovery. An open one holds no descriptor, and its files are mapped while they are used (`OpenFiles`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from engine.files.open_files import OpenFiles
from engine.format import names
from engine.log.consume_queue import ConsumeQueue
from engine.log.consume_queue_ext import ConsumeQueueExt
from engine.log.derive import TopicQueue

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.files.disk import Disk
    from engine.log.state import QueueState


class QueueTable:
    """See the module. Thread-safe; a queue itself has one appender (dispatch).

    `most_open`: files that are mapped at a time; None: as many as the system lets us have.

    Attributes:
        lmq_count: light queues that were seen so far (Apache lmqConsumeQueueNum).
    """

    def __init__(self, disk: Disk, config: StoreConfig, most_open: int | None = None) -> None:
        self._disk = disk
        self._file_size = config.mapped_file_size_consume_queue
        self._ext_size = config.mapped_file_size_consume_queue_ext if config.enable_consume_queue_ext else None
        root = config.store_path_root_dir
        self._base = str(root / names.CONSUMEQUEUE)
        self._ext_base = str(root / names.CONSUMEQUEUE_EXT)
        self._open_files = OpenFiles(most_open)
        self._lock = threading.Lock()
        self._known: dict[TopicQueue, QueueState] = {}
        self._open: dict[TopicQueue, ConsumeQueue] = {}
        self._min_physical_offset = 0
        self.lmq_count = 0

    def load(self, states: Iterable[QueueState], min_physical_offset: int) -> None:
        """Take over what recovery found; the log's first byte is at `min_physical_offset`. Opens nothing."""
        with self._lock:
            self._known = {state.queue: state for state in states}
            self._min_physical_offset = max(0, min_physical_offset)
            self.lmq_count = sum(names.is_lmq(queue.topic) for queue in self._known)

    def find(self, queue: TopicQueue) -> ConsumeQueue | None:
        """The queue, opened; None when there is none. Raises WrongFileSize, FormatError, StorageError."""
        return self._open.get(queue) or (self.obtain(queue) if queue in self._known else None)

    def obtain(self, queue: TopicQueue) -> ConsumeQueue:
        """The queue, made when there is none (its directory comes with its first unit). Raises as `find`."""
        consume_queue = self._open.get(queue)
        if consume_queue is not None:
            return consume_queue
        with self._lock:
            consume_queue = self._open.get(queue)
            if consume_queue is None:
                ext = None
                if self._ext_size is not None:
                    ext = ConsumeQueueExt(self._disk, self._ext_base, queue, self._ext_size, self._open_files)
                consume_queue = ConsumeQueue(self._disk, self._base, queue, self._file_size, ext, self._open_files)
                consume_queue.open(self._known.get(queue))
                if queue in self._known:
                    consume_queue.correct_min_offset(self._min_physical_offset)
                elif names.is_lmq(queue.topic):
                    self.lmq_count += 1
                self._open[queue] = consume_queue
            return consume_queue

    def has_room(self, queue: TopicQueue, offsets: Sequence[int]) -> bool:
        """Whether units of these queue offsets go to the end of a queue that is open: see ConsumeQueue."""
        consume_queue = self._open.get(queue)
        return consume_queue is not None and consume_queue.has_room(offsets)

    def queues(self) -> tuple[TopicQueue, ...]:
        """Every queue of the store, opened or not, by topic and id."""
        with self._lock:
            return tuple(sorted(self._known.keys() | self._open.keys()))

    def names(self) -> list[TopicQueue]:
        """As `queues`, in no order, and those that are open may be there twice: at next to no cost."""
        with self._lock:
            return [*self._known, *self._open]

    def opened(self) -> tuple[ConsumeQueue, ...]:
        """The queues that are open."""
        with self._lock:
            return tuple(self._open.values())

    def next_offsets(self) -> dict[TopicQueue, int]:
        """The topic-queue table: the next queue offset of each queue. Source: #recoverTopicQueueTable."""
        with self._lock:
            table = {queue: state.max_offset for queue, state in self._known.items()}
            table.update({queue: consume_queue.max_offset for queue, consume_queue in self._open.items()})
            return table

    def max_physical_offset(self) -> int:
        """After the last message that any queue knows; −1 without queues."""
        with self._lock:
            known = [state.max_physical_offset for queue, state in self._known.items() if queue not in self._open]
            return max([-1, *known, *(consume_queue.max_physical_offset for consume_queue in self._open.values())])

    def forget(self, queue: TopicQueue) -> ConsumeQueue | None:
        """Take a queue out of the table, opened, so that the caller can destroy it; None when there is none."""
        consume_queue = self.find(queue)
        with self._lock:
            self._known.pop(queue, None)
            self._open.pop(queue, None)
        return consume_queue

    def begin_at(self, min_physical_offset: int) -> None:
        """The log begins there now: a queue that is opened later starts from it, too."""
        with self._lock:
            self._min_physical_offset = max(self._min_physical_offset, min_physical_offset)

    def find_to_expire(self, queue: TopicQueue) -> ConsumeQueue | None:
        """The queue if something in it may have to go: None for one that nobody has opened and that has one file.

        Opening it will move its min offset. Raises as `find`.
        """
        opened = self._open.get(queue)
        if opened is not None or not any(self._has_several(base, queue) for base in (self._base, self._ext_base)):
            return opened
        return self.find(queue)

    def _has_several(self, base: str, queue: TopicQueue) -> bool:
        directory = names.queue_directory(base, queue.topic, queue.queue_id)
        return self._disk.exists(directory) and len(self._disk.listdir(directory)) > 1

    def shutdown(self) -> None:
        """Give all files back."""
        for queue in self.opened():
            queue.shutdown()
