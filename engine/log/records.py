"""The records that a get found: where they lie, and only what is asked for made of them: views, objects or columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from engine.format.message import decode_many
from engine.log.decoded import decoded
from engine.log.natives import MESSAGES, VIEWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.format.message import StoredMessage
    from engine.format.record_columns import RecordColumns

Place: TypeAlias = tuple[memoryview, int, int]
"""A record: bytes of the log, its position in them, its size."""
RecordRun: TypeAlias = "tuple[memoryview, int, tuple[int, ...], tuple[int, ...]]"
"""Records in one piece of the log: its bytes, the physical offset of the first, that of each record, size of each."""


class Records:
    """See the module. Never changed, and what is made is kept."""

    __slots__ = ("_columns", "_places", "_run", "_views")

    def __init__(
        self, places: Sequence[Place] = (), columns: RecordColumns | None = None, run: RecordRun | None = None
    ) -> None:
        """Of places, of columns, or of a run."""
        self._places = places
        self._columns = columns
        self._run = run
        self._views: tuple[memoryview, ...] | None = None

    def __len__(self) -> int:
        if self._run is not None:
            return len(self._run[3])
        return len(self._places) if self._columns is None else len(self._columns)

    def __eq__(self, other: object) -> bool:
        """Whether they are the same bytes."""
        return self.views() == other.views() if isinstance(other, Records) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(map(bytes, self.views())))

    @property
    def size(self) -> int:
        """Bytes of all records."""
        if self._run is not None:
            return sum(self._run[3])
        return sum([size for _, _, size in self._all_places()])

    def views(self) -> tuple[memoryview, ...]:
        """The records as stored, without a copy where the log is mapped."""
        if self._views is None:
            if self._run is not None:
                native = VIEWS.after(len(self._run[3]))
                if native is not None:
                    self._views = native(*self._run)
                else:
                    buffer, base, physical, sizes = self._run
                    places = zip(physical, sizes, strict=True)
                    self._views = tuple([buffer[at - base : at - base + size] for at, size in places])
            else:
                self._views = tuple([buffer[at : at + size] for buffer, at, size in self._all_places()])
        return self._views

    def decoded(self) -> list[StoredMessage]:
        """The records as objects. Raises FormatError: one is none."""
        if self._run is not None and (native := MESSAGES.after(len(self._run[3]))) is not None:
            return decoded(*self._run, native)
        return decode_many(self.views())

    def columns(self) -> RecordColumns:
        """The records as columns. Raises FormatError: one is none."""
        if self._columns is None:
            from engine.format.record_columns import decode_columns

            places = self._all_places()
            if places and any(buffer is not places[0][0] for buffer, _, _ in places):
                places = _in_one(places)
            buffer = places[0][0] if places else memoryview(b"")
            self._columns = decode_columns(buffer, [(at, size) for _, at, size in places])
        return self._columns

    def _all_places(self) -> Sequence[Place]:
        if self._columns is not None and not self._places:
            buffer, table = self._columns.buffer, self._columns.table
            self._places = [(buffer, at, size) for at, size in zip(table[0].tolist(), table[1].tolist(), strict=True)]
        elif self._run is not None and not self._places:
            buffer, base, physical, sizes = self._run
            self._places = [(buffer, at - base, size) for at, size in zip(physical, sizes, strict=True)]
        return self._places


NOTHING = Records()


def _in_one(places: Sequence[Place]) -> list[Place]:
    """A copy of the records, one after another."""
    buffer = memoryview(b"".join([buffer[at : at + size] for buffer, at, size in places]))
    copied: list[Place] = []
    at = 0
    for _, _, size in places:
        copied.append((buffer, at, size))
        at += size
    return copied
