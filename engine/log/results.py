"""What the store answers: to a put, to a get, to a query. Values only.

The statuses and their names are Apache's (AppendMessageResult, PutMessageResult, GetMessageResult and their enums,
4.9.8), so that a broker on top answers its clients with the same codes. Beyond Apache each failure carries the
error behind it: a status says what to do, the error says why.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from engine.dataclass import dataclass
from engine.errors import InvalidArgument, RStoreError, StorageError
from engine.format.hosts import Host
from engine.format.message import make_msg_id
from engine.format.quantities import counted
from engine.log.records import NOTHING, Records

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.format.message import StoredMessage
    from engine.format.record_columns import RecordColumns


class PutMessageStatus(enum.Enum):
    """How a put ended. FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT and SLAVE_NOT_AVAILABLE: it is stored all the same."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPEDFILE_FAILED = "CREATE_MAPEDFILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGECACHE_BUSY = "OS_PAGECACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"


_OK = PutMessageStatus.PUT_OK


class GetMessageStatus(enum.Enum):
    """How a get ended."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class MessageRefused(InvalidArgument):
    """A message that the log can't take; `status` is what its put is answered with."""

    def __init__(
        self,
        message: str,
        status: PutMessageStatus = PutMessageStatus.MESSAGE_ILLEGAL,
        *,
        path: str | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, path=path, offset=offset, hint=hint)
        self.status = status


class StoreClosed(StorageError):
    """The store was closed, or is closing."""


class WriteFailed(StorageError):
    """The system refused to write into a file that was there already; nothing was appended."""


class AppendResult(NamedTuple):
    """Where an append lies in the log.

    Attributes:
        physical_offset: of the first record, bytes.
        size: bytes of all records.
        store_timestamp: ms.
        queue_offset: of the first message in its consume queue (0 for prepared and rolled back ones).
        store_host: as stored.
        offsets: physical offset of each record.
    """

    physical_offset: int
    size: int
    store_timestamp: int
    queue_offset: int
    store_host: Host
    offsets: tuple[int, ...]

    @property
    def next_offset(self) -> int:
        """Physical offset after the last record."""
        return self.physical_offset + self.size

    @property
    def message_count(self) -> int:
        """Messages that were appended (Apache msgNum)."""
        return len(self.offsets)

    @property
    def msg_id(self) -> str:
        """The offset message ids, joined by commas. Source: AppendMessageResult#getMsgId."""
        return ",".join(make_msg_id(self.store_host, offset) for offset in self.offsets)


@dataclass(frozen=True, slots=True, eq=False)
class AppendedRun:
    """Where messages lie that were appended in one go, in their order.

    Attributes:
        store_timestamp: ms, of all.
        physical_offsets, queue_offsets: int64[n], of each.
        sizes: int64[n], bytes of each one's record.
        failure: what kept those after them from it; None: nothing did.
    """

    store_timestamp: int
    physical_offsets: NDArray[np.int64]
    queue_offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    failure: StorageError | None = None

    def __len__(self) -> int:
        return len(self.sizes)

    def results(self, store_hosts: Iterable[Host]) -> Iterator[AppendResult]:
        """What a put of each alone answers. `store_hosts`: of each."""
        columns = (column.tolist() for column in (self.physical_offsets, self.sizes, self.queue_offsets))
        for host, physical, size, offset in zip(store_hosts, *columns, strict=True):
            yield AppendResult(physical, size, self.store_timestamp, offset, host, (physical,))


class PutResult(NamedTuple):
    """The answer to a put: `append` when it is in the log, `error` when something is wrong (see `status`)."""

    status: PutMessageStatus
    append: AppendResult | None = None
    error: RStoreError | None = None

    @property
    def ok(self) -> bool:
        """Whether everything that was asked for is done."""
        return self.status is _OK

    def failure(self, before: int, root: str) -> RStoreError:
        """The error of a put into the store at `root` that failed, which says how many were put `before` it."""
        put = f"; {counted(before, 'message was', 'messages were')} put before it" if before else ""
        if self.error is None:
            return StorageError(f"put: {self.status.value}{put}", path=root)
        self.error.message += put
        return self.error


class GetResult(NamedTuple):
    """The answer to a get.

    Attributes:
        status: as Apache's.
        next_begin_offset: queue offset to ask for next, corrected as `status` says.
        min_offset, max_offset: the queue's first and next queue offset.
        records: what was found.
        suggest_from_slave: the reader is so far behind that a slave should serve it.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int = 0
    max_offset: int = 0
    records: Records = NOTHING
    suggest_from_slave: bool = False

    @property
    def messages(self) -> tuple[memoryview, ...]:
        """The records as stored, without a copy where the log is mapped."""
        return self.records.views()

    def decoded(self) -> list[StoredMessage]:
        """The records as objects. Raises FormatError: one is none."""
        return self.records.decoded()

    def columns(self) -> RecordColumns:
        """The records as columns. Raises FormatError: one is none."""
        return self.records.columns()

    @property
    def message_count(self) -> int:
        """Messages found."""
        return len(self.records)

    @property
    def total_size(self) -> int:
        """Bytes of all messages (Apache bufferTotalSize)."""
        return self.records.size


class QueryResult(NamedTuple):
    """The answer to a query by key: the records, in log order; and how far the index goes.

    Attributes:
        messages: the records as stored.
        offsets: physical offset of each.
        index_last_update_timestamp: ms, of the newest message in the index.
        index_last_update_offset: its physical offset.
    """

    messages: tuple[memoryview, ...] = ()
    offsets: tuple[int, ...] = ()
    index_last_update_timestamp: int = 0
    index_last_update_offset: int = 0
