"""What goes from those who scan a log to those who build from it: units and keys as blobs, each with its address.

A row of Spark's is a blob of up to `MOST` units or keys, so that Spark, which counts rows, has its memory bounded. Rows
of one target (a queue, an index file) come in log order: by split, and in a split by chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from engine.log.derive import Keys, Units
    from engine.log.scan import Damage

MOST = 1 << 13
"""Units or keys in a row: 300 KB at most."""
QUEUE, INDEX = 0, 1

_UNIT_FIELDS = [
    ("queue_offset", "<i8"),
    ("physical_offset", "<i8"),
    ("tags_code", "<i8"),
    ("store_timestamp", "<i8"),
    ("size", "<i4"),
]
_KEY_FIELDS = [("physical_offset", "<i8"), ("store_timestamp", "<i8"), ("key_hash", "<i4")]
KEY_SIZE = 20
"""Bytes of a key in a blob."""


class UnitRow(NamedTuple):
    """Units of one queue from one split."""

    store: int
    topic: str
    queue_id: int
    split: int
    chunk: int
    units: bytes


class KeyRow(NamedTuple):
    """Keys from one split. `first`: the number of the first one among the split's."""

    store: int
    split: int
    first: int
    keys: bytes

    @property
    def many(self) -> int:
        """How many."""
        return len(self.keys) // KEY_SIZE


class Scanned(NamedTuple):
    """What is said of one split: its number, sound records, messages, offset after the last one, keys, damage."""

    store: int
    split: int
    records: int
    messages: int
    end: int | None
    units: int
    keys: int
    damage: tuple[Damage, ...]


class BlobTarget(NamedTuple):
    """Where a blob goes: a queue (topic, number = queue id) or an index file (number = its share); then its order.

    `split` is −1 for the key before the first one of an index file.
    """

    store: int
    kind: int
    topic: str
    number: int
    split: int
    chunk: int


Addressed: TypeAlias = tuple[BlobTarget, bytes]


def unit_blobs(units: Units) -> Iterator[bytes]:
    """Units as blobs."""
    for at in range(0, len(units), MOST):
        yield _packed(units, _UNIT_FIELDS, at)


def key_blobs(keys: Keys) -> Iterator[bytes]:
    """Keys as blobs."""
    for at in range(0, len(keys), MOST):
        yield _packed(keys, _KEY_FIELDS, at)


def units_of(blob: bytes) -> Units:
    """The units of a blob. Their `queue` column is 0."""
    import numpy as np

    from engine.log.derive import Units

    rows = np.frombuffer(blob, dtype=_UNIT_FIELDS)
    return Units(
        np.zeros(len(rows), dtype=np.int32),
        _column(rows, "queue_offset"),
        _column(rows, "physical_offset"),
        rows["size"].astype(np.int32),
        _column(rows, "tags_code"),
        _column(rows, "store_timestamp"),
    )


def keys_of(blob: bytes) -> Keys:
    """The keys of a blob."""
    import numpy as np

    from engine.log.derive import Keys

    rows = np.frombuffer(blob, dtype=_KEY_FIELDS)
    return Keys(rows["key_hash"].astype(np.int32), _column(rows, "physical_offset"), _column(rows, "store_timestamp"))


def _packed(table: Units | Keys, fields: list[tuple[str, str]], at: int) -> bytes:
    import numpy as np

    rows = np.empty(min(MOST, len(table) - at), dtype=fields)
    for name, _ in fields:
        rows[name] = getattr(table, name)[at : at + MOST]
    return rows.tobytes()


def _column(rows: NDArray[np.void], name: str) -> NDArray[np.int64]:
    import numpy as np

    return rows[name].astype(np.int64)
