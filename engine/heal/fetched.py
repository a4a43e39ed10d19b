"""Bytes of a copy, kept until they are written: what was proved is what is written, whatever the copy says later."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

from engine.dataclass import dataclass
from engine.inspect.store.spool import ByteSpool
from engine.log.source import Segment
from engine.repair.recover.bridge import Patch

if TYPE_CHECKING:
    from engine.heal.sources import HealCopy

CHUNK = 1 << 20
"""Bytes that are fetched, kept and written at once."""
_IN_MEMORY = 16 << 20


class Store:
    """Where fetched bytes are kept: in memory while they are few, in an unlinked temporary file otherwise."""

    def __init__(self) -> None:
        self._spool = ByteSpool(_IN_MEMORY)

    def put(self, data: bytes) -> int:
        """Keep some bytes; their place."""
        import numpy as np

        return self._spool.add(np.frombuffer(data, dtype=np.uint8))

    def get(self, place: int, start: int, length: int) -> bytes:
        """Bytes of what was put at a place, from `start` on."""
        return bytes(self._spool.read(place + start, length))

    def close(self) -> None:
        """Give memory and file back."""
        self._spool.close()


@dataclass(frozen=True, slots=True)
class Fetched:
    """The bytes [start, end) (physical) of a copy, in chunks of CHUNK bytes; `digest`: their SHA-256."""

    start: int
    end: int
    store: Store
    places: tuple[int, ...]
    digest: bytes

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from a physical offset on, as far as they were fetched."""
        out = bytearray()
        offset, end = max(offset, self.start), min(offset + length, self.end)
        while offset < end:
            number, inside = divmod(offset - self.start, CHUNK)
            some = min(CHUNK - inside, end - offset)
            out += self.store.get(self.places[number], inside, some)
            offset += some
        return bytes(out)


class Readable(Protocol):
    """Bytes of the log that were fetched."""

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from a physical offset on, as far as they were fetched."""
        ...


@dataclass(frozen=True, slots=True)
class Joined:
    """Fetched bytes that follow each other, and the store's own between them.

    `own`: reads the store's log where nothing was fetched.
    """

    parts: tuple[Fetched, ...]
    own: Callable[[int, int], bytes]

    def read(self, offset: int, length: int) -> bytes:
        """See Readable. Raises StorageError."""
        out = bytearray()
        end = offset + length
        while (at := offset + len(out)) < end:
            here = next((one for one in self.parts if one.start <= at < one.end), None)
            until = here.end if here else min([end, *(one.start for one in self.parts if one.start > at)])
            some = min(end, until) - at
            data = here.read(at, some) if here else self.own(at, some)
            out += data
            if len(data) < some:
                break
        return bytes(out)


def patches(fetched: Readable, start: int, end: int) -> tuple[FetchedPatch, ...]:
    """What is written over [start, end), a chunk at a time."""
    return tuple(FetchedPatch(at, min(CHUNK, end - at), data=b"", fetched=fetched) for at in range(start, end, CHUNK))


@dataclass(frozen=True, slots=True)
class FetchedPatch(Patch):
    """A patch whose bytes are read back when they are asked for."""

    fetched: Readable = field(kw_only=True)

    @property
    def zeros(self) -> tuple[int, int]:
        """See Patch: none follow."""
        return self.end, self.end

    def head(self) -> bytes:
        """See Patch."""
        return self.fetched.read(self.offset, self.length)

    def render(self, start: int, end: int) -> bytes:
        """See Patch."""
        start, end = max(start, self.offset), min(end, self.end)
        return self.fetched.read(start, end - start)


class FetchedLog:
    """Fetched bytes as the scanner reads a log (engine.log.source.LogSource): one segment, of which it has a part."""

    def __init__(self, segment: Segment, fetched: Readable, start: int, end: int) -> None:
        self._segment = segment
        self._fetched = fetched
        self._start, self._end = start, end

    @property
    def segments(self) -> Sequence[Segment]:
        """See LogSource."""
        return (self._segment,)

    def read(self, offset: int, length: int) -> memoryview:
        """See LogSource."""
        return memoryview(self._fetched.read(offset, min(length, self._end - offset)))

    def data_ranges(self, segment: Segment, offset: int) -> Iterator[tuple[int, int]]:
        """See LogSource."""
        del segment
        if offset < self._end:
            yield max(offset, self._start), self._end


def fetch(copy: HealCopy, start: int, end: int, store: Store) -> Fetched | int:
    """The bytes [start, end) of a copy; or the physical offset up to which it has them. Raises RStoreError."""
    places = []
    sha256 = hashlib.sha256()
    for at in range(start, end, CHUNK):
        wanted = min(CHUNK, end - at)
        data = copy.read(at, wanted)
        if len(data) != wanted:
            return at + min(len(data), wanted - 1)
        sha256.update(data)
        places.append(store.put(data))
    return Fetched(start, end, store, tuple(places), sha256.digest())
