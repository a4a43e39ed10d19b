"""Messages of one topic and queue as columns: what a pipeline has, or a client's batch, before any is an object.

Bodies and properties lie in buffers, and columns say where. Both may lie in the same one, as in a batch that a client
sent (engine.format.batch), which is taken without copying a body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.format import batch
from engine.format.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from engine.format.batch import BatchItem
    from engine.format.buffers import Buffer


@dataclass(frozen=True, slots=True, eq=False)
class MessageColumns:
    """n messages of a batch: what each has of its own, as `BatchItem` has it. Made by `of`, `of_items`, `of_frame`.

    Attributes:
        bodies: uint8[any], where the bodies are; body_at, body_length: int64[n], bytes.
        properties: uint8[any], where the properties strings are; properties_at, properties_length: int64[n], bytes.
        flag: int32[n].
    """

    bodies: NDArray[np.uint8]
    body_at: NDArray[np.int64]
    body_length: NDArray[np.int64]
    properties: NDArray[np.uint8]
    properties_at: NDArray[np.int64]
    properties_length: NDArray[np.int64]
    flag: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.body_at)

    @classmethod
    def of(
        cls,
        bodies: Buffer,
        body_length: ArrayLike,
        properties: Buffer = b"",
        properties_length: ArrayLike | None = None,
        flag: ArrayLike = 0,
    ) -> MessageColumns:
        """Bodies one after another in one buffer, and properties (strings as stored) in another.

        Args:
            bodies: bytes of all bodies.
            body_length: int[n], bytes of each.
            properties: bytes of all properties.
            properties_length: int[n], bytes of each (default: none has any).
            flag: int[n], or one int for all.

        Raises:
            InvalidArgument: lengths below 0, or that don't add up to the buffers' sizes; a flag of more than 32 bits.
        """
        import numpy as np

        lengths = np.asarray(body_length, dtype=np.int64).reshape(-1)
        count = len(lengths)
        own = np.zeros(count, dtype=np.int64) if properties_length is None else properties_length
        of_properties = np.asarray(own, dtype=np.int64).reshape(-1)
        return cls(
            _bytes(bodies),
            _packed(lengths, len(bodies), "bodies"),
            lengths,
            _bytes(properties),
            _packed(of_properties, len(properties), "properties"),
            of_properties,
            _flags(flag, count),
        )._checked()

    @classmethod
    def of_items(cls, items: Sequence[BatchItem]) -> MessageColumns:
        """The same messages as objects: one copy of each. Raises InvalidArgument: a flag of more than 32 bits."""
        bodies = [item.body for item in items]
        names = [item.properties_raw for item in items]
        return cls.of(
            b"".join(bodies), list(map(len, bodies)), b"".join(names), list(map(len, names)),
            [item.flag for item in items],
        )  # fmt: skip

    @classmethod
    def of_frame(cls, frame: Buffer) -> MessageColumns:
        """The messages in the body of a batch send, without a copy. Raises FormatError as `batch.decode`."""
        import numpy as np

        return cls.of_places(frame, np.array(list(batch.places(frame)), dtype=np.int64).reshape(-1, 5))

    @classmethod
    def of_places(cls, frame: Buffer, table: NDArray[np.int64]) -> MessageColumns:
        """The messages that lie in a batch where `batch.places` says: int64[n, 5]. Nothing is checked."""
        import numpy as np

        data = _bytes(frame)
        flag, body_at, body_length, properties_at, properties_length = np.ascontiguousarray(table.T)
        return cls(data, body_at, body_length, data, properties_at, properties_length, flag.astype(np.int32))

    def __getitem__(self, which: slice) -> MessageColumns:
        """Some of the messages, without a copy of any."""
        return MessageColumns(
            self.bodies,
            self.body_at[which],
            self.body_length[which],
            self.properties,
            self.properties_at[which],
            self.properties_length[which],
            self.flag[which],
        )

    def items(self) -> list[BatchItem]:
        """The messages as objects. Raises InvalidArgument: a place outside of its buffer."""
        self._checked()
        columns = (self.body_at, self.body_length, self.properties_at, self.properties_length, self.flag)
        bodies, names = self.bodies.data, self.properties.data
        return [
            batch.BatchItem(bytes(bodies[at : at + length]), flag, bytes(names[own : own + size]))
            for at, length, own, size, flag in zip(*(column.tolist() for column in columns), strict=True)
        ]

    def _checked(self) -> MessageColumns:
        count = len(self)
        for what, buffer, at, length in (
            ("bodies", self.bodies, self.body_at, self.body_length),
            ("properties", self.properties, self.properties_at, self.properties_length),
        ):
            if len(at) != count or len(length) != count:
                raise InvalidArgument(f"{what}: {len(length)} lengths for {counted(count, 'message')}")
            if count and (int(length.min()) < 0 or int(at.min()) < 0 or bool((length > len(buffer) - at).any())):
                raise InvalidArgument(f"{what} are outside of their buffer of {len(buffer)} bytes")
        return self


def _packed(lengths: NDArray[np.int64], size: int, what: str) -> NDArray[np.int64]:
    """Where each begins when they lie one after another."""
    ends = lengths.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    if total != size:
        raise InvalidArgument(f"the lengths of {what} add up to {total} bytes, the buffer has {size}")
    return ends - lengths


def _flags(flag: Any, count: int) -> NDArray[np.int32]:
    import numpy as np

    try:
        return np.broadcast_to(np.asarray(flag, dtype=np.int32), (count,)).copy()
    except (OverflowError, ValueError) as error:
        raise InvalidArgument(f"flags do not fit into a column of {count}: {error}") from None


def _bytes(buffer: Buffer) -> NDArray[np.uint8]:
    import numpy as np

    data = np.frombuffer(buffer, dtype=np.uint8) if len(buffer) else np.zeros(0, dtype=np.uint8)
    data.flags.writeable = False
    return data
