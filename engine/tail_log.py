"""The messages that a running broker adds to a store, as it adds them: the log followed beside it, nothing written.

What lies at the end of such a log and is no record may be one that is being written: it is looked at again. It is
passed over, and told, once a sound record lies after it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.files.disk import Disk
from engine.format.message import decode
from engine.format.names import segment_name
from engine.format.sysflag import is_consumable
from engine.format.topic_rules import is_brokers_own
from engine.inspect.store.known_names import KnownNames
from engine.inspect.store.survey import survey
from engine.log.closed_log import ClosedLogReader
from engine.log.scan import Damage, RecordBatch, Scanner

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from engine.config import StoreConfig
    from engine.format.message import StoredMessage

_LOOK = 4096
_AHEAD = 4 << 20
"""Bytes after damage in which a sound record is looked for, each time."""


class FollowedLog:
    """See the module. A context manager.

    Args:
        topics: messages of these alone; none: of all.

    Attributes:
        passed: ranges of damage that were passed over: physical offsets.

    Raises:
        InvalidArgument: the store knows no such topic. NotAStore, CannotRepair, StorageError.
    """

    def __init__(self, config: StoreConfig, topics: Collection[str] = (), disk: Disk | None = None) -> None:
        self._disk = disk or Disk(mapped=False)
        files = survey(self._disk, config)
        self._config = files.config
        self._directories = files.log_directories
        known = KnownNames.of(self._disk, files)
        for topic in topics:
            known.demand_topic(topic)
        self._topics = frozenset(topics)
        self._log = ClosedLogReader(self._disk, files.log, files.config)
        self._scanner = Scanner(self._log.source, max_message_size=files.config.max_message_size, kernels=False)
        self._at = self._log.max_offset
        self.passed: list[tuple[int, int]] = []

    def __enter__(self) -> FollowedLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()

    def next_messages(self) -> Iterator[StoredMessage]:
        """What has come since the last call, in log order: messages that consumers get, those of the topics.

        Raises:
            StorageError: the log can't be read.
        """
        self._look_for_segments()
        for event in self._scanner.scan(self._at):
            if isinstance(event, Damage):
                self._at = self._after(event)
                return
            self._at = event.end
            if isinstance(event, RecordBatch):
                for row in event.rows:
                    message = decode(event.buffer, row.position)
                    if self._is_wanted(message):
                        yield message

    def _is_wanted(self, message: StoredMessage) -> bool:
        if not is_consumable(message.sys_flag):
            return False
        return message.topic in self._topics if self._topics else not is_brokers_own(message.topic)

    def _look_for_segments(self) -> None:
        """The broker may have begun another segment, or the first."""
        segments = self._log.source.segments
        following = segment_name(segments[-1].end if segments else 0)
        if any(self._disk.exists(os.path.join(path, following)) for path in self._directories):
            self._log.look_at(survey(self._disk, self._config).log)

    def _after(self, damage: Damage) -> int:
        """Where to look next: the same place, until a sound record lies after what is none."""
        at = damage.offset
        if not any(self._log.source.read(at, min(_LOOK, damage.segment.end - at))):
            return at  # not written yet
        following = self._scanner.find_sound(at + 1, min(at + _AHEAD, damage.segment.end))
        if following is None or self._scanner.sound_size(at + damage.segment.before_record):
            return at  # it was being written when it was read, and is not now
        self.passed.append((at, following))
        return following
