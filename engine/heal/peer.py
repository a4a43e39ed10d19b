"""A running broker as a source: ranges of its log over replication, by who is no slave (engine.client.ha_reader)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.client.ha_reader import OutsideLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.client.ha_reader import HaReader
    from engine.client.remote_broker import RemoteBroker
    from engine.heal.sources import HealCopy

_WAIT_S = 15.0


class PeerSource:
    """The log of a broker, a master or a slave whose replication service answers.

    Only what its log has by its own word is asked for: Apache's master answers nothing else, and logs errors.

    Args:
        remote: the broker.

    Raises:
        StorageError, FormatError: it can't be asked.
    """

    def __init__(self, remote: RemoteBroker) -> None:
        self.name = remote.address
        self.segment_size: int | None = None
        facts = remote.facts()
        self._start, self._end = facts.start, facts.end
        self._reader: HaReader = remote.reader(facts)

    def copies(self, offset: int) -> Iterator[HealCopy]:
        """See HealSource."""
        if self._start <= offset < self._end:
            yield self

    def read(self, offset: int, length: int) -> bytes:
        """See HealCopy. Raises PeerLost, FormatError."""
        out = bytearray()
        end = min(offset + length, self._end)
        while self._start <= offset and offset + len(out) < end:
            try:
                some = self._reader.read_some(offset + len(out), end - offset - len(out), _WAIT_S)
            except OutsideLog:
                break
            if not some:
                break
            out += some
        return bytes(out)

    def close(self) -> None:
        """See HealSource."""
        self._reader.close()
