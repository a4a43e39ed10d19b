"""Damage to one field of one record's header, and to what follows it."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from tests.proof import own
from tests.proof.own import Record
from tests.proof.scene import Scene

FIXED = MappingProxyType(
    {
        "totalSize": (0, 4),
        "magicCode": (4, 4),
        "bodyCRC": (8, 4),
        "queueId": (12, 4),
        "flag": (16, 4),
        "queueOffset": (20, 8),
        "physicalOffset": (28, 8),
        "sysFlag": (36, 4),
        "bornTimestamp": (40, 8),
        "bornHost": (48, 8),
    }
)
"""Position and length of the fields whose place is the same in every record."""


def _places(record: Record) -> dict[str, tuple[int, int]]:
    store = 48 + (20 if record.sys_flag & own.V6_BORN else 8)
    host = store + 8
    after = host + (20 if record.sys_flag & own.V6_STORE else 8)
    body = after + 12
    topic = body + 4 + len(record.body)
    properties = topic + 1 + len(record.topic)
    return {
        **FIXED,
        "storeTimestamp": (store, 8),
        "storeHost": (host, 8),
        "reconsumeTimes": (after, 4),
        "preparedTransactionOffset": (after + 4, 8),
        "bodyLength": (body, 4),
        "body": (body + 4, len(record.body)),
        "topicLength": (topic, 1),
        "topic": (topic + 1, len(record.topic)),
        "propertiesLength": (properties, 2),
        "properties": (properties + 2, len(record.properties)),
    }


def _shape(field: str) -> Callable[[Scene], str]:
    def damage(scene: Scene) -> str:
        offset, record, path, position = scene.record(least_body=1 if field == "body" else 0)
        at, length = _places(record)[field]
        if length == 0:
            return f"{field} of the record at {offset} has no bytes"
        old = own.content(path)[position + at : position + at + length]
        new, how = bytearray(old), scene.rng.random()
        if how < 0.6:
            bit = scene.rng.randrange(length * 8)
            new[bit // 8] ^= 1 << bit % 8
        elif how < 0.8:
            new[:] = scene.rng.randbytes(length)
        else:
            new[:] = bytes(length)
        scene.write(path, position + at, bytes(new))
        return f"{field} of the record at {offset}: {old[:8].hex()} became {bytes(new[:8]).hex()}"

    damage.__doc__ = f"A record's {field}: a bit flipped, random, or zero."
    return damage


def properties_end_zero(scene: Scene) -> str:
    """The last 25 bytes of a record are zeros: outside of what its CRC covers."""
    offset, record, path, position = scene.record()
    size = min(25, len(record.properties))
    scene.write(path, position + record.size - size, bytes(size))
    return f"the last {size} bytes of the record at {offset}"


NAMES = (*FIXED, "storeTimestamp", "storeHost", "reconsumeTimes", "preparedTransactionOffset", "bodyLength", "body")
NAMES += ("topicLength", "topic", "propertiesLength", "properties")
SHAPES = {**{f"field-{name}": _shape(name) for name in NAMES}, "properties-end-zero": properties_end_zero}
