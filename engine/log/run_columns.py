"""Messages that follow one another as columns: what a put of a list takes without an object a message.

A sequence of messages all the same: each is made when it is asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, overload

from engine.dataclass import dataclass
from engine.format.message import Message
from engine.format.properties import NAME_VALUE, SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from engine.format.hosts import Host

_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class RunColumns(Sequence[Message]):
    """n messages with hosts and a time in common.

    Attributes:
        bodies, names: uint8[any], read-only, bodies one after another, and properties as they are stored: each named
            once, in text that UTF-8 can hold.
        body_length, own_length: int64[n], bytes of each.
        which: int64[n], the place of each.
        places: topic and queue id of those that messages go to.
        born_timestamp: ms.
        born_host, store_host: of all.
    """

    bodies: NDArray[np.uint8]
    body_length: NDArray[np.int64]
    names: NDArray[np.uint8]
    own_length: NDArray[np.int64]
    which: NDArray[np.int64]
    places: tuple[tuple[str, int], ...]
    born_timestamp: int
    born_host: Host
    store_host: Host

    def __len__(self) -> int:
        return len(self.which)

    def __iter__(self) -> Iterator[Message]:
        bodies, names = self.bodies.tobytes(), self.names.tobytes()
        ends = (itertools.accumulate(lengths.tolist()) for lengths in (self.body_length, self.own_length))
        body_at = name_at = 0
        for number, body_end, name_end in zip(self.which.tolist(), *ends, strict=True):
            yield self._message(self.places[number], bodies[body_at:body_end], names[name_at:name_end])
            body_at, name_at = body_end, name_end

    @overload
    def __getitem__(self, at: int) -> Message: ...
    @overload
    def __getitem__(self, at: slice) -> RunColumns: ...

    def __getitem__(self, at: int | slice) -> Message | RunColumns:
        """One of them, or some that follow one another."""
        if isinstance(at, int):
            first = range(len(self))[at]
            return next(iter(self[first : first + 1]))
        first, stop, step = at.indices(len(self))
        if step != 1:
            raise ValueError("messages of a run follow one another")
        body, name = (
            slice(int(lengths[:first].sum()), int(lengths[: max(first, stop)].sum()))
            for lengths in (self.body_length, self.own_length)
        )
        rows = slice(first, max(first, stop))
        return replace(
            self,
            bodies=self.bodies[body],
            body_length=self.body_length[rows],
            names=self.names[name],
            own_length=self.own_length[rows],
            which=self.which[rows],
        )

    def samples(self) -> Iterator[Message]:
        """A message of each place, with what it has in common with others that go there."""
        for place in self.places:
            yield self._message(place, b"", b"")

    def may_have(self, name: str) -> bool:
        """Whether one of them may have a property; False: none has."""
        return f"{name}{NAME_VALUE}".encode() in self.names.tobytes()

    def _message(self, place: tuple[str, int], body: bytes, raw: bytes) -> Message:
        topic, queue_id = place
        pairs = _NO_PROPERTIES
        if raw:
            parts = (pair.partition(NAME_VALUE) for pair in raw.decode().split(SEPARATOR))
            pairs = {name: value for name, _, value in parts}
        return Message(
            topic,
            body,
            queue_id,
            pairs,
            born_timestamp=self.born_timestamp,
            born_host=self.born_host,
            store_host=self.store_host,
        )
