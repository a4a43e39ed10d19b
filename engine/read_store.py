"""A store opened to be read: without the lock, without a recovery, without writing a byte, beside a live broker.

Theory: nothing says where log and queues of such a store end, so a queue ends after its last valid unit, and the
log where the scanner finds no record any more. A message counts when a sound record lies where its unit says. Only
what a question needs is opened: the directories are listed once, a queue when it is first asked for.

It is a view: what a broker adds later is seen in queues that were not asked for before; open a new one for the rest.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, Self

from engine.errors import FormatError, InvalidArgument, NextStep, NotFound, StorageError
from engine.files.disk import Disk
from engine.format import names, properties
from engine.format.message import decode, make_msg_id, parse_msg_id
from engine.format.names import segment_name
from engine.format.quantities import counted, moment
from engine.inspect import next_step
from engine.inspect.store.archive_note import archive_note
from engine.inspect.store.batch_queue import BatchQueueRows, batch_queue
from engine.inspect.store.known_names import KnownNames
from engine.inspect.store.newer import refuse_queue
from engine.inspect.store.survey import survey
from engine.log.closed_log import ClosedLogReader
from engine.log.closed_queue import ClosedExt, ClosedQueue
from engine.log.derive import TopicQueue
from engine.log.index_reader import ClosedIndexFile
from engine.log.message_reader import END_OF_TIME, MessageReader
from engine.log.place import Lies
from engine.log.results import StoreClosed

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.format.message import StoredMessage
    from engine.inspect.store.survey import StoreFiles
    from engine.log.place import Place
    from engine.log.reading import LogReader, TimedQueueReader

    class PlacedLogReader(LogReader, Protocol):
        """A log that also tells what lies where no record begins."""

        def place_at(self, offset: int) -> Place:
            """See ClosedLogReader."""
            ...


MOST_ALIKE = 64
"""Messages of one client's id that are looked for in a topic."""
_ANY_TIME = 1 << 72
"""Ms: beyond every time that a file can name."""
_KEPT_OPEN = 64
"""Index files that stay open: a query asks all of them."""


class ReadStore(MessageReader):
    """See the module. Thread-safe. A context manager."""

    def __init__(self, config: StoreConfig, disk: Disk | None = None, files: StoreFiles | None = None) -> None:
        """Look at the store that `config` names; sizes that nobody gave are taken from its files. `files`: its survey.

        Raises:
            NotAStore, CannotRepair: there is none that can be read. StorageError.
        """
        self._disk = disk or Disk(mapped=False)
        self.files = survey(self._disk, config) if files is None else files
        super().__init__(self.files.config)
        self._lock = threading.Lock()
        self._queues: dict[TopicQueue, ClosedQueue] = {}
        self._index_files: dict[str, ClosedIndexFile] = {}
        self._known = {queue.queue: queue.source or self._disk for queue in self.files.queues}
        self._closed = False
        self.log = ClosedLogReader(self._disk, self.files.log, self.config, self._index_end())

    def close(self) -> None:
        """Close all files; a second time does nothing."""
        self._closed = True
        with self._lock:
            for queue in self._queues.values():
                queue.close()
            self._queues.clear()
            for file in self._index_files.values():
                file.close()
            self._index_files.clear()
            self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def queues(self) -> tuple[TopicQueue, ...]:
        """Every queue that has a directory, by topic and id."""
        return tuple(sorted(self._known))

    def find_queue(self, topic: str, queue_id: int) -> TimedQueueReader | None:
        """See MessageReader. Raises as `closed_queue`."""
        return self.closed_queue(topic, queue_id)

    def closed_queue(self, topic: str, queue_id: int) -> ClosedQueue | None:
        """The consume queue as it lies in the store, None when there is none.

        Raises:
            StoreClosed, StorageError. NewerStore: the topic has queues of a kind that only RocketMQ 5 reads.
        """
        self._readable_log()
        refuse_queue(self.files.config, self.files.root, self.files.newer, topic)
        wanted = TopicQueue(topic, queue_id)
        with self._lock:
            queue = self._queues.get(wanted)
            if queue is None and wanted in self._known:
                base = str(self.config.store_path_root_dir / names.CONSUMEQUEUE)
                size = self.config.mapped_file_size_consume_queue
                disk = self._known[wanted]
                queue = ClosedQueue(disk, base, wanted, size, self.log.min_offset, self._ext(wanted))
                self._queues[wanted] = queue
                self._look_at_log_again(queue.max_physical_offset)
            return queue

    def batch_rows(self, topic: str, queue_id: int) -> BatchQueueRows | None:
        """The units of a batch queue of RocketMQ 5 as they lie in the store, None when there is none.

        Raises:
            StoreClosed, StorageError.
        """
        self._readable_log()
        named = batch_queue(self._disk, self.files, TopicQueue(topic, queue_id))
        if named is None:
            return None
        rows = BatchQueueRows(self._disk, named, self.log.min_offset)
        with self._lock:
            self._look_at_log_again(rows.max_physical_offset)
        return rows

    def _look_at_log_again(self, newest: int) -> None:
        """A queue is opened: it may name messages that were written since the log was looked at.

        `newest`: physical offset of the last.
        """
        if newest > self.log.upper_bound:
            if self._has_next_segment():
                self.files = replace(self.files, log=survey(self._disk, self.config).log)
            self.log.look_at(self.files.log)
        self.log.forget_damage()

    def _has_next_segment(self) -> bool:
        """Whether there is a segment after those that are known: a unit after the log's end is damage otherwise."""
        following = segment_name(self.files.log[-1].end if self.files.log else 0)
        return any(self._disk.exists(os.path.join(path, following)) for path in self.files.log_directories)

    @property
    def log_range(self) -> str:
        """What to tell who asks for a place that is not in the log."""
        return f"the log holds offsets {self.log.min_offset} to {self.log.max_offset}"

    @property
    def archived_below(self) -> int | None:
        """Physical offset below which an archive answers; None: the store is read without one."""
        return None

    def archive_step(self, *words: str) -> NextStep | None:
        """The same command with the archive that the store notes; None: it notes none, or is read with it."""
        try:
            note = archive_note(self._disk, self.files.root)
        except (FormatError, StorageError):  # check tells of it
            return None
        return None if note is None else note.step(self.files.config, *words)

    def known_names(self) -> KnownNames:
        """Topics, queues and groups that it knows. Raises StorageError."""
        return KnownNames.of(self._disk, self.files)

    def find_message(self, msg_id: str, topic: str | None = None) -> list[StoredMessage]:
        """The message of an offset message id; else all whose UNIQ_KEY, the id that their client gave, it is.

        Both look alike (32 hex digits): what lies where an offset message id points, and has that very id, is meant.
        A client's id is many messages' where one was sent twice, retried, delayed or in a transaction. It is looked
        for in the index under each topic that is known. Source: DefaultMQAdminExtImpl#viewMessage.

        Args:
            msg_id: the id; a client's may be any text.
            topic: only its messages.

        Returns:
            The messages in log order, MOST_ALIKE of them and the newest; never none. One that has another id than
            that lies where an offset message id points: the id names another address than the broker's.

        Raises:
            NotFound: no message has that id. InvalidArgument: no such topic, or the message is not of it.
            FormatError: an offset message id points into damage. StorageError.
        """
        there = self._at_msg_id(msg_id)
        if there is not None and make_msg_id(there.store_host, there.physical_offset) == msg_id.upper():
            if topic not in (None, there.topic):
                raise InvalidArgument(f"message {msg_id} belongs to topic {there.topic}, not {topic}")
            return [there]
        known = self.known_names()
        matches: dict[int, StoredMessage] = {}
        newest = 0
        for one in sorted(known.topics) if topic is None else (topic,):
            for word in dict.fromkeys((msg_id, msg_id.upper())):
                result = self.query(one, word, MOST_ALIKE)
                newest = max(newest, result.index_last_update_timestamp)
                messages = (decode(record) for record in result.messages)
                matches |= {m.physical_offset: m for m in messages if m.properties.get(properties.UNIQ_KEY) == word}
        if matches:
            return [matches[offset] for offset in sorted(matches)][-MOST_ALIKE:]
        if there is not None and topic in (None, there.topic):
            return [there]  # another address than the broker's: it was written by hand, or the broker has moved
        if topic is not None:
            known.demand_topic(topic)
        as_brokers = self._why_not_there(msg_id)
        where = f"under topic {topic}" if topic is not None else f"under {counted(len(known.topics), 'topic')}"
        as_clients = self.index_said(newest, f"{where} not in the index")
        if topic is None and not known.topics:
            why = (
                f"topics are in RocksDB ({known.hidden}), which rstore does not read"
                if known.hidden
                else "no topic is left"
            )
            as_clients = f"the index is searched by topic, and {why}: name a topic before --msg-id"
        raise NotFound(
            f"no message with the id {msg_id}",
            path=self.files.root,
            hint=f"as a broker's id: {as_brokers}; as a client's: {as_clients}",
            next_step=self.archive_step("get", "--msg-id", msg_id) or next_step.search_log(self.files.config, msg_id),
        )

    def message_at(self, physical_offset: int) -> StoredMessage:
        """The message at a physical offset.

        Raises:
            InvalidArgument: none begins there, and what does is named. FormatError: the log is damaged there, or its
            file is missing. StorageError.
        """
        message = self._look(physical_offset)
        if message is not None:
            return message
        place = self._place(physical_offset)
        if place.lies is Lies.RECORD and place.start == physical_offset:  # a live broker has written it since
            message = self.look_message(physical_offset)
            if message is not None:
                return message
        step = None
        if place.lies in (Lies.RECORD, Lies.HEADER):
            start = place.start if place.lies is Lies.RECORD else place.end
            following = next_step.command_line(self.files.config, "get", "--physical-offset", str(start))
            step = NextStep(following, "shows that record")
        elif place.lies is Lies.NOTHING and physical_offset < self.log.min_offset:
            step = self.archive_step("get", "--physical-offset", str(physical_offset))
        raise InvalidArgument(
            f"offset {physical_offset} is {place}: no message starts there",
            path=place.path or self.files.root,
            hint=self.log_range if place.lies is Lies.NOTHING else None,
            next_step=step,
        )

    def _look(self, physical_offset: int) -> StoredMessage | None:
        """The message that begins there; None where there is none."""
        try:
            return self.look_message(physical_offset)
        except FormatError:
            return None

    def index_said(self, newest: int, missing: str = "it is not in the index") -> str:
        """What the index says where a query found nothing: that, and up to when it goes.

        Args:
            newest: the time of its newest message (ms), as the query said.
            missing: what was not found there.
        """
        if not self.files.index:
            return "there are no index files"
        if newest:
            return f"{missing}, which goes up to {moment(newest)}"
        return f"{missing}, whose times are damaged" if self._has_entries() else "the index has no entries"

    def _at_msg_id(self, msg_id: str) -> StoredMessage | None:
        """The message that begins where an offset message id points."""
        try:
            return self._look(parse_msg_id(msg_id)[1])
        except InvalidArgument:
            return None

    def _why_not_there(self, msg_id: str) -> str:
        """Why no message has this offset message id. Raises FormatError: the log is damaged where it points."""
        try:
            _, offset = parse_msg_id(msg_id)
        except InvalidArgument:
            return "it does not have the form of one"
        place = self._place(offset, f"if a broker gave the id {msg_id}, it points to this offset")
        return f"it points to {offset}, which is {place}"

    def _place(self, offset: int, hint: str | None = None) -> Place:
        """What lies where no record begins. Raises FormatError: damage, or no file; with a `hint` for who asked."""
        place = self._readable_log().place_at(offset)
        if place.lies is Lies.GAP:
            raise FormatError(
                f"the segments from {place.start} to {place.end} are missing: no message can be read there",
                path=self.files.root,
                offset=offset,
                hint=hint,
                next_step=next_step.read(self.files.config),
            )
        if place.lies is Lies.DAMAGE:
            raise FormatError(
                f"the log is damaged from {place.start} on ({place.reason}): no message can be read there",
                path=place.path,
                offset=offset,
                hint=hint,
                next_step=next_step.read(self.files.config),
            )
        return place

    def _readable_log(self) -> PlacedLogReader:
        if self._closed:
            raise StoreClosed("the store is closed", path=self.config.store_path_root_dir)
        return self.log

    def _log_end(self) -> int:
        return self.log.upper_bound

    def _walk_index(
        self, topic: str, key: str, begin: int, end: int, max_num: int, accept: Callable[[int], bool]
    ) -> tuple[int, int]:
        from engine.format.hashing import message_key_hash

        wanted = message_key_hash(topic, key)
        if begin <= 0 and end >= END_OF_TIME:  # whatever a damaged header or entry says
            begin, end = -_ANY_TIME, _ANY_TIME
        newest = (0, 0)
        left = max_num
        for index in reversed([name for name in self.files.index if name.whole]):
            with self._index_file(index.path) as file:
                header = file.header
                newest = max(newest, (header.end_timestamp, header.end_phy_offset))
                if left > 0 and header.is_time_matched(begin, end):
                    left -= len(file.query(wanted, begin, end, left, accept=accept).offsets)
            if left <= 0 or header.begin_timestamp < begin:
                break
        return newest

    def _has_entries(self) -> bool:
        """Whether any index file has an entry, by its header."""
        for name in self.files.index:
            if name.whole:
                with self._index_file(name.path) as file:
                    if file.entry_count > 0:
                        return True
        return False

    @contextlib.contextmanager
    def _index_file(self, path: str) -> Iterator[ClosedIndexFile]:
        """An index file, open; it stays so unless too many are."""
        with self._lock:
            kept = self._index_files.get(path)
            if kept is None and not self._closed and len(self._index_files) < _KEPT_OPEN:
                kept = self._index_files[path] = ClosedIndexFile(self._disk, path, self.files.index_layout)
        if kept is not None:
            yield kept
            return
        with ClosedIndexFile(self._disk, path, self.files.index_layout) as file:
            yield file

    def _ext(self, queue: TopicQueue) -> ClosedExt | None:
        root = self.config.store_path_root_dir / names.CONSUMEQUEUE_EXT
        if not self._disk.exists(str(root)):
            return None
        return ClosedExt(self._disk, str(root), queue, self.config.mapped_file_size_consume_queue_ext)

    def _index_end(self) -> int:
        """Physical offset of the newest message in the index; 0 when it can't be determined."""
        for index in reversed(self.files.index):
            if index.whole:
                try:
                    with ClosedIndexFile(self._disk, index.path, self.files.index_layout) as file:
                        return file.header.end_phy_offset
                except StorageError:
                    return 0
        return 0
