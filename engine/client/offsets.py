"""Where a group or a consumer continues: kept by the brokers for clusters, in a file for broadcasting.

Source: RemoteBrokerOffsetStore, LocalFileOffsetStore.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import orjson

from engine.client.queues import MessageQueue
from engine.errors import FormatError, RStoreError

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable
    from pathlib import Path

    from engine.client.calls import BrokerCalls
    from engine.files.disk import Disk


_AT_ONCE = 64
"""Offsets that are on their way to brokers at a time."""
_LARGEST = 16 << 20
"""Bytes of a file of offsets that are read."""


class OffsetStore(Protocol):
    """Offsets of one group. What was consumed is kept in memory, and stored by `persist`."""

    def known(self, queue: MessageQueue) -> int | None:
        """What is in memory."""
        ...

    def update(self, queue: MessageQueue, offset: int, *, only_up: bool) -> None:
        """Consumed up to here. `only_up`: a smaller offset than the known one does not count."""
        ...

    async def stored(self, queue: MessageQueue) -> int | None:
        """What was stored; None: nothing. Raises what BrokerCalls raises, or a file's errors."""
        ...

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Store what is in memory, of these queues or all. What fails is logged, and stored the next time."""
        ...

    def forget(self, queue: MessageQueue) -> None:
        """Another consumer has the queue."""
        ...


class _Memory:
    def __init__(self) -> None:
        self.offsets: dict[MessageQueue, int] = {}

    def known(self, queue: MessageQueue) -> int | None:
        return self.offsets.get(queue)

    def update(self, queue: MessageQueue, offset: int, *, only_up: bool) -> None:
        if not only_up or offset > self.offsets.get(queue, -1):
            self.offsets[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        self.offsets.pop(queue, None)


class RemoteOffsets(_Memory):
    """On the brokers of each queue. For one loop."""

    def __init__(self, calls: BrokerCalls, group: str, log: logging.Logger) -> None:
        super().__init__()
        self._calls = calls
        self._group = group
        self._log = log
        self._persisted: dict[MessageQueue, int] = {}

    async def stored(self, queue: MessageQueue) -> int | None:
        """See OffsetStore."""
        return await self._calls.group_offset(self._group, queue)

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """See OffsetStore."""
        asked = list(self.offsets if queues is None else queues)
        for at in range(0, len(asked), _AT_ONCE):
            await asyncio.gather(*map(self._store, asked[at : at + _AT_ONCE]))

    async def _store(self, queue: MessageQueue) -> None:
        offset = self.offsets.get(queue)
        if offset is None or self._persisted.get(queue) == offset:
            return
        try:
            await self._calls.commit(self._group, queue, offset)
        except RStoreError as error:
            self._log.warning("the offset of group %s in %s was not stored: %s", self._group, queue, error)
        else:
            self._persisted[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        """See OffsetStore."""
        super().forget(queue)
        self._persisted.pop(queue, None)


class LocalOffsets(_Memory):
    """In a JSON file of this consumer. For one loop."""

    def __init__(self, disk: Disk, path: Path, log: logging.Logger) -> None:
        super().__init__()
        self._disk = disk
        self._path = path
        self._log = log

    async def stored(self, queue: MessageQueue) -> int | None:
        """See OffsetStore. Raises FormatError, StorageError."""
        return self._read().get(queue)

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """See OffsetStore."""
        try:
            table = self._read() | self.offsets
            rows = [{**queue._asdict(), "offset": offset} for queue, offset in sorted(table.items())]
            self._disk.mkdirs(str(self._path.parent))
            self._disk.write_file_atomically(str(self._path), orjson.dumps(rows, option=orjson.OPT_INDENT_2))
        except RStoreError as error:
            self._log.warning("offsets were not stored: %s", error)

    def _read(self) -> dict[MessageQueue, int]:
        if not self._path.exists():
            return {}
        text = self._disk.read_file(str(self._path), _LARGEST)
        try:
            return {
                MessageQueue(str(one["topic"]), str(one["broker"]), int(one["queue_id"])): int(one["offset"])
                for one in orjson.loads(text)
            }
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise FormatError(f"malformed file of offsets: {error}", path=self._path) from None
