"""Records where none was written: after the log end, and within the bodies of others; and clocks that jump."""

from __future__ import annotations

import struct

from tests.proof import own
from tests.proof.scene import NotHere, Scene

_PHYSICAL = 28


def _store_time_at(data: bytes) -> int:
    (sys_flag,) = struct.unpack_from(">i", data, 36)
    return 48 + (20 if sys_flag & own.V6_BORN else 8)


def _not_lost(scene: Scene) -> list[int]:
    """Records that are there, whole or not: where zeros lie, nothing tells a second one from the only one."""
    content = {start: own.content(path) for start, path in scene.segments()}
    size = scene.base.segment
    return [
        offset
        for offset, (data, _) in sorted(scene.facts.records.items())
        if any(content.get(offset - offset % size, b"\xff")[offset % size :][: len(data)])
    ]


def _tail(scene: Scene, *, own_place: bool) -> str:
    path, at = scene.end()
    offsets = _not_lost(scene)
    count = scene.rng.randrange(1, 21)
    first = scene.rng.randrange(max(1, len(offsets) - count))
    written = 0
    for offset in offsets[first : first + count]:
        data = bytearray(scene.facts.records[offset][0])
        if at + len(data) + 8 > scene.base.segment:
            break
        if own_place:
            struct.pack_into(">q", data, _PHYSICAL, own.named(path.name) + at)  # type: ignore[operator]
        scene.write(path, at, bytes(data))
        at += len(data)
        written += 1
    if not written:
        raise NotHere
    return f"{written} old records after the log end in {scene.said(path)}"


def stale_tail(scene: Scene) -> str:
    """1 to 20 whole old records after the log end, that say where they lay before."""
    return _tail(scene, own_place=False)


def stale_tail_in_place(scene: Scene) -> str:
    """1 to 20 whole old records after the log end, that say that they lie there: left by a log that was cut."""
    return _tail(scene, own_place=True)


def nested_record(scene: Scene) -> str:
    """A whole record within the body of one whose body is damaged; it says that it lies there."""
    offset, record, path, position = scene.record(least_body=120)
    fits = [data for data, one in scene.facts.records.values() if len(data) <= len(record.body) - 8 and one.kind == 0]
    if not fits:
        raise NotHere
    inner = bytearray(scene.pick(fits))
    at = position + (88 if not record.sys_flag & 0x30 else record.size - len(record.body))
    body = own.content(path).find(record.body, position)
    at = body + scene.rng.randrange(len(record.body) - len(inner))
    struct.pack_into(">q", inner, _PHYSICAL, offset + at - position)
    scene.write(path, at, bytes(inner))
    return f"a record at {at - position} within the one at {offset}"


def clock_jumps(scene: Scene) -> str:
    """The clock jumped while the log was written: store times go back, or far ahead. No damage, another history."""
    offsets = sorted(scene.facts.records)
    first = scene.rng.randrange(1, len(offsets))
    last = scene.rng.choice([len(offsets), min(len(offsets), first + scene.rng.randrange(1, 60))])
    by = scene.rng.choice([-3_600_000, -2_000, 3_600_000, 30 * 86_400_000])
    segments = dict(scene.segments())
    size = scene.base.segment
    records = dict(scene.facts.records)
    changes = []
    for offset in offsets[first:last]:
        data = bytearray(records[offset][0])
        path = segments.get(offset // size * size)
        if path is None or not own.content(path)[offset % size :].startswith(data):
            continue
        at = _store_time_at(data)
        (time,) = struct.unpack_from(">q", data, at)
        struct.pack_into(">q", data, at, time + by)
        changes.append((path, offset % size, bytes(data), offset))
    if not changes:
        raise NotHere
    for path, at, changed, offset in changes:
        scene.write(path, at, changed)
        scene.rewrite(offset, changed)
    return f"{by} ms from the record at {offsets[first]} on, for {len(changes)} records"


SHAPES = {
    "stale-tail": stale_tail,
    "stale-tail-in-place": stale_tail_in_place,
    "nested-record": nested_record,
    "clock-jumps": clock_jumps,
}
