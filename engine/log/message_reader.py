"""Everything that a store answers without being changed: the same methods for an open store and a read-only view.

A subclass says where the bytes are: the log, a queue, the index. What is done with them is in engine.log.reading.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.format.message import StoredMessage, parse_msg_id
from engine.format.record import MIN_RECORD_SIZE
from engine.log import reading
from engine.log.reading import GetKernel, LogReader, ReadLimits, TimedQueueReader
from engine.log.results import GetResult, QueryResult

if TYPE_CHECKING:
    from engine.config import StoreConfig
    from engine.log.filters import MessageFilter

END_OF_TIME = (1 << 63) - 1


class MessageReader(ABC):
    """See the module. Sources: DefaultMessageStore (4.9.8), the method of the same meaning.

    Attributes:
        config: settings, with the sizes that the files have.
    """

    def __init__(self, config: StoreConfig) -> None:
        self.config = config
        self._limits = ReadLimits.of(config)
        self._kernel: GetKernel | None = None
        self._kernel_looked_for = False

    # --- where the bytes are ----------------------------------------------------------------------------------------

    @abstractmethod
    def find_queue(self, topic: str, queue_id: int) -> TimedQueueReader | None:
        """The consume queue, None when there is none. Raises StoreClosed, StorageError."""

    @abstractmethod
    def _readable_log(self) -> LogReader:
        """The log; raises StoreClosed, StorageError when it can't be read now."""

    @abstractmethod
    def _log_end(self) -> int:
        """Physical offset of the log end, to tell memory from disk: an upper bound will do."""

    @abstractmethod
    def _walk_index(
        self, topic: str, key: str, begin: int, end: int, max_num: int, accept: Callable[[int], bool]
    ) -> tuple[int, int]:
        """Offer offsets from the index, newest first, until `max_num` are accepted.

        Returns:
            store time (ms) and physical offset of the newest message in the index.
        """

    # --- messages ---------------------------------------------------------------------------------------------------

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msgs: int = 32,
        message_filter: MessageFilter | None = None,
    ) -> GetResult:
        """Messages of a queue from a queue offset on. Source: #getMessage.

        Raises:
            StorageError: the store is closed or not readable, or the disk is not.
        """
        log = self._readable_log()
        queue = self.find_queue(topic, queue_id)
        return reading.get_message(log, self._log_end(), queue, offset, max_msgs, self._limits, message_filter)

    def get_columns(self, topic: str, queue_id: int, offset: int, max_msgs: int = 32) -> GetResult:
        """As `get`, the records decoded to columns at once (`GetResult.columns`): for who reads many.

        The first call loads the kernels, where numba is there: about half a second.

        Raises:
            StorageError: as `get`. FormatError: a unit points at bytes that are no record.
        """
        log = self._readable_log()
        queue = self.find_queue(topic, queue_id)
        if not self._kernel_looked_for:
            self._kernel, self._kernel_looked_for = _get_kernel(), True
        return reading.get_columns(log, self._log_end(), queue, offset, max_msgs, self._limits, self._kernel)

    def look_message(self, physical_offset: int) -> StoredMessage | None:
        """The message at a physical offset; None outside of the log. Source: #lookMessageByOffset.

        Raises:
            FormatError: none starts there. StorageError.
        """
        return reading.look_message(self._readable_log(), physical_offset)

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The bytes of the record at a physical offset; None outside of the log. Source: #selectOneMessageByOffset.

        Raises:
            FormatError: none starts there. StorageError.
        """
        return reading.record_at(self._readable_log(), physical_offset)

    def readable(self, physical_offset: int, size: int) -> tuple[int, memoryview] | None:
        """Bytes of one file of the log, a record of `size` bytes among them; and the physical offset of the first.

        None: it is not there, or has to be asked for alone (`record_at`). Raises StoreClosed, StorageError.
        """
        return self._readable_log().readable(physical_offset, size, size)

    def is_cold(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a queue's message lies so far before the log end that it isn't in memory any more.

        Source: #checkInDiskByConsumeOffset.
        """
        self._readable_log()
        queue = self.find_queue(topic, queue_id)
        return queue is not None and reading.is_cold(self._log_end(), queue, offset, self._limits)

    def look_by_msg_id(self, msg_id: str) -> StoredMessage | None:
        """The message of an offset message id. Raises InvalidArgument, and as `look_message`."""
        return self.look_message(parse_msg_id(msg_id)[1])

    def query(self, topic: str, key: str, max_num: int = 32, begin: int = 0, end: int = END_OF_TIME) -> QueryResult:
        """Messages with a key (UNIQ_KEY or a word of KEYS) stored in [begin, end] (ms): the newest, in log order.

        At most `max_num` and maxMsgsNumBatch; up to 999 ms before `begin` may be among them. Source: #queryMessage.
        """
        chosen: dict[int, memoryview] = {}
        accept = reading.verifier(self._readable_log(), topic, key, chosen)
        most = min(max_num, self.config.max_msgs_num_batch)
        return reading.query_result(chosen, *self._walk_index(topic, key, begin, end, most, accept))

    # --- positions and times ----------------------------------------------------------------------------------------

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First queue offset; 0 without such a queue, as Apache, which makes one when asked."""
        queue = self.find_queue(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Next queue offset; 0 without such a queue."""
        queue = self.find_queue(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Queue offset of the message stored nearest to a time (ms), by Apache's rules.

        Source: #getOffsetInQueueByTime.
        """
        queue = self.find_queue(topic, queue_id)
        if queue is None:
            return 0
        return queue.offset_by_time(timestamp, self._store_time_of, self._readable_log().min_offset)

    def lower_bound(self, topic: str, queue_id: int, timestamp: int) -> int:
        """First queue offset stored at that time (ms) or later: exact, while store times don't decrease."""
        queue = self.find_queue(topic, queue_id)
        return 0 if queue is None else queue.lower_bound_by_time(timestamp, self._store_time_of)

    def upper_bound(self, topic: str, queue_id: int, timestamp: int) -> int:
        """First queue offset stored later than that time (ms): exact, while store times don't decrease."""
        queue = self.find_queue(topic, queue_id)
        return 0 if queue is None else queue.upper_bound_by_time(timestamp, self._store_time_of)

    def message_store_timestamp(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time (ms) of the message at a queue offset, −1 without one. Source: #getMessageStoreTimeStamp."""
        queue = self.find_queue(topic, queue_id)
        return -1 if queue is None else reading.store_timestamp_of(self._readable_log(), queue, offset)

    def earliest_message_time(self, topic: str | None = None, queue_id: int = 0) -> int:
        """Store time (ms) of the first message of a queue, or (no topic) of the log; −1 without one."""
        log = self._readable_log()
        if topic is None:
            return reading.store_timestamp_at(log, log.min_offset, MIN_RECORD_SIZE)
        queue = self.find_queue(topic, queue_id)
        return -1 if queue is None else reading.store_timestamp_of(log, queue, queue.min_offset)

    def _store_time_of(self, offset: int, size: int) -> int:
        return reading.store_timestamp_at(self._readable_log(), offset, size)


def _get_kernel() -> GetKernel | None:
    try:
        from engine.log.kernels.get import get
    except ImportError:
        return None
    return get
