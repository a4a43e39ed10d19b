"""From the messages of a batch to the bytes of their records, as far as that goes without the append lock.

A batch has one topic, queue, hosts, times and common properties; bodies, flags and further properties are its messages'
own. It goes into one file, all of it or nothing, and its messages take consecutive queue offsets.

Kernels encode, from the moment on when so many messages have come that loading them pays. Before, and without numba,
plain Python does: the same bytes.

Rules and their sources: DefaultMessageStore#checkMessages, CommitLog#asyncPutMessages and properties of a batch from
MessageExtEncoder#encode(MessageExtBatch). Stricter than Apache as engine.log.prepare says.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.errors import InvalidArgument
from engine.format import properties, property_crc, sysflag
from engine.format.batch import ITEM_SIZE, BatchItem
from engine.format.columns import MessageColumns
from engine.format.hashing import body_crc
from engine.format.message import Message, patch
from engine.format.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from engine.format.record import PROPERTIES_MAX_LENGTH
from engine.format.template import RecordTemplate, length_of_properties
from engine.log.prepare import Destination, Preparer, properties_too_long
from engine.log.results import MessageRefused

if TYPE_CHECKING:
    from types import ModuleType

    import numpy as np
    from numpy.typing import NDArray

    from engine.config import StoreConfig
    from engine.format.hosts import Host

MANY = 16_384
"""Messages that are encoded one by one before the kernels are loaded, which takes a quarter of a second."""
_SEPARATOR = properties.SEPARATOR.encode()


class PreparedBatch:
    """A batch, ready to be appended: as `engine.log.prepare.Prepared`, with `count` messages.

    `queue`, `numbered` (always), `size` (bytes of all records), `count`, as there.
    """

    __slots__ = ("_destination", "_records", "_starts", "count", "queue", "size")
    numbered = True
    place = None

    def __init__(self, destination: Destination, records: bytearray, starts: Sequence[int]) -> None:
        self._destination = destination
        self._records = records
        self._starts = starts
        self.queue = destination.queue
        self.size = len(records)
        self.count = len(starts)

    @property
    def store_host(self) -> Host:
        """As stored."""
        return self._destination.template.store_host

    def record(self, queue_offset: int, physical_offset: int, store_timestamp: int) -> bytearray:
        """The records' bytes."""
        records = self._records
        for i, start in enumerate(self._starts):
            patch(
                records,
                start,
                queue_offset=queue_offset + i,
                physical_offset=physical_offset + start,
                store_timestamp=store_timestamp,
            )
        if self._destination.template.reserved:
            with memoryview(records) as view:
                for start, end in itertools.pairwise((*self._starts, len(records))):
                    property_crc.seal(view[start:end])
        return records

    def offsets(self, physical_offset: int) -> tuple[int, ...]:
        """Physical offset of each record."""
        return tuple([physical_offset + start for start in self._starts])


class PreparedColumns:
    """A batch that the kernels have encoded: as `PreparedBatch`."""

    __slots__ = ("_destination", "_kernels", "_records", "_starts", "count", "queue", "size")
    numbered = True

    def __init__(
        self, kernels: ModuleType, destination: Destination, records: NDArray[np.uint8], starts: NDArray[np.int64]
    ) -> None:
        self._kernels = kernels
        self._destination = destination
        self._records = records
        self._starts = starts
        self.queue = destination.queue
        self.size = len(records)
        self.count = len(starts) - 1

    @property
    def store_host(self) -> Host:
        """As stored."""
        return self._destination.template.store_host

    def record(self, queue_offset: int, physical_offset: int, store_timestamp: int) -> memoryview:
        """The records' bytes."""
        out = memoryview(bytearray(self.size))
        self.place(out, queue_offset, physical_offset, store_timestamp)
        return out

    def place(self, target: memoryview, queue_offset: int, physical_offset: int, store_timestamp: int) -> None:
        """Write the records' bytes to where they belong."""
        self._kernels.place(
            target,
            self._records,
            self._starts,
            self._destination.template,
            queue_offset,
            physical_offset,
            store_timestamp,
        )

    def offsets(self, physical_offset: int) -> tuple[int, ...]:
        """Physical offset of each record."""
        return tuple((self._starts[:-1] + physical_offset).tolist())


class BatchPreparer:
    """Prepares batches by a store's settings. Thread-safe.

    Args:
        config: settings.
        preparer: knows destinations.
    """

    def __init__(self, config: StoreConfig, preparer: Preparer) -> None:
        self._preparer = preparer
        self._max_message_size = config.max_message_size
        self._max_record = preparer.max_record
        self._left: int | None = MANY  # messages before the kernels are loaded; None: there are none
        self._kernels: ModuleType | None = None

    def batch(self, message: Message, items: Sequence[BatchItem] | MessageColumns) -> PreparedBatch | PreparedColumns:
        """A batch: topic, queue, hosts, times and common properties from `message`, the rest from the items.

        Raises:
            MessageRefused: as `Preparer.one`; also with a transaction or a delay, which a batch can't have.
        """
        if message.prepared_transaction_offset:  # a batch's records have none
            message = message._replace(prepared_transaction_offset=0)
        destination = self._preparer.destination(message)
        if not len(items):
            raise MessageRefused("the batch has no messages")
        if sysflag.transaction_type(message.sys_flag) != sysflag.TRANSACTION_NONE:
            raise MessageRefused("a batch can't be part of a transaction")
        if properties.delay_level(message.properties) > 0:
            raise MessageRefused("a batch can't be delayed")
        if not LONG_MIN <= message.born_timestamp <= LONG_MAX:
            raise MessageRefused(f"number out of range for its field: bornTimestamp {message.born_timestamp}")
        common = _common(destination.template, message)
        try:
            if self._by_kernels(items):
                columns = items if isinstance(items, MessageColumns) else MessageColumns.of_items(items)
                return self._columns(destination, message, columns, common)
            return self._plain(
                destination, message, items.items() if isinstance(items, MessageColumns) else items, common
            )
        except MessageRefused:
            raise
        except InvalidArgument as error:
            raise MessageRefused(error.message, hint=error.hint) from None

    def pieces(self, message: Message, columns: MessageColumns) -> list[MessageColumns]:
        """Any number of messages as batches, each as large as a batch may be.

        Raises:
            MessageRefused: `message` is none that has a place in the store.
        """
        import numpy as np

        template = self._preparer.destination(message).template
        fixed = template.fixed_size
        between = len(_SEPARATOR) + len(_common(template, message))
        own = columns.body_length + columns.properties_length
        many, total = len(own), int(own.sum())
        if total + many * ITEM_SIZE <= self._max_message_size and total + many * (fixed + between) <= self._max_record:
            return [columns]
        sent, stored = (own + ITEM_SIZE).cumsum(), (own + fixed + between).cumsum()
        pieces: list[MessageColumns] = []
        start = 0
        while start < len(columns):
            done, lies = (int(ends[start - 1]) if start else 0 for ends in (sent, stored))
            stop = min(
                int(np.searchsorted(sent, done + self._max_message_size, side="right")),
                int(np.searchsorted(stored, lies + self._max_record, side="right")),
            )
            pieces.append(columns[start : max(stop, start + 1)])
            start = max(stop, start + 1)
        return pieces

    def _by_kernels(self, items: Sequence[BatchItem] | MessageColumns) -> bool:
        if self._kernels is not None:
            return True
        if self._left is None:
            return False
        self._left -= len(items)
        if self._left > 0:
            return False
        try:
            from engine.log.kernels import encode
        except ImportError:
            self._left = None
            return False
        self._kernels = encode
        return True

    def _columns(
        self, destination: Destination, message: Message, columns: MessageColumns, common: bytes
    ) -> PreparedColumns:
        kernels = self._kernels
        assert kernels is not None
        self._check_sent(
            ITEM_SIZE * len(columns) + int(columns.body_length.sum()) + int(columns.properties_length.sum())
        )
        template = destination.template
        arrays = kernels.arrays(columns)
        starts, longest, wrong = kernels.measure(arrays, template, len(common))
        if wrong >= 0:
            raise MessageRefused(f"message {wrong} of the batch is outside of its buffers")
        if longest > PROPERTIES_MAX_LENGTH:
            raise properties_too_long(longest)
        self._check_size(int(starts[-1]))
        records = kernels.encode(arrays, template, message.born_timestamp, common, starts)
        return PreparedColumns(kernels, destination, records, starts)

    def _plain(
        self, destination: Destination, message: Message, items: Sequence[BatchItem], common: bytes
    ) -> PreparedBatch:
        self._check_sent(sum([ITEM_SIZE + len(item.body) + len(item.properties_raw) for item in items]))
        records, starts = encode_plain(destination.template, message.born_timestamp, items, common)
        self._check_size(len(records))
        return PreparedBatch(destination, records, starts)

    def _check_sent(self, size: int) -> None:
        if size > self._max_message_size:
            raise MessageRefused(f"the batch is longer than {self._max_message_size} bytes", hint="see maxMessageSize")

    def _check_size(self, size: int) -> None:
        if size > self._max_record:
            raise MessageRefused(f"a batch of {size} bytes does not fit into a segment: see mappedFileSizeCommitLog")


def _common(template: RecordTemplate, message: Message) -> bytes:
    """Properties that each message has after its own."""
    text = properties.join(message.properties)
    return (properties.separated(text) if template.reserved else text).encode("utf-8", "replace")


def encode_plain(
    template: RecordTemplate, born_timestamp: int, items: Sequence[BatchItem], common: bytes
) -> tuple[bytearray, list[int]]:
    """The records of a batch, property CRCs still 0, and where each begins.

    Raises:
        MessageRefused: properties that are too long, a flag that its field can't hold.
    """
    parts: list[bytes] = []
    starts: list[int] = []
    at = 0
    for item in items:
        body, own = item.body, item.properties_raw
        if common or template.reserved:
            own = own + (_SEPARATOR if own and not own.endswith(_SEPARATOR) else b"") + common
        own_size = len(own) + template.reserved
        if own_size > PROPERTIES_MAX_LENGTH:
            raise properties_too_long(own_size)
        if not INT_MIN <= item.flag <= INT_MAX:
            raise MessageRefused(f"number out of range for its field: flag {item.flag}")
        size = template.fixed_size + len(body) + len(own)
        parts += (
            template.head(size, body_crc(body), len(body), item.flag, born_timestamp),
            body,
            template.topic,
            length_of_properties(own_size),
            own,
            bytes(template.reserved),
        )
        starts.append(at)
        at += size
    return bytearray().join(parts), starts
