"""Damage to what RocketMQ 5 keeps: batch queues, timer log, timer wheel, timercheck, epochs, property CRCs."""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np

from tests.proof import own
from tests.proof.newer import EPOCHS, record_with_crc
from tests.proof.scene import NotHere, Scene

BATCH, TIMER, SLOT = own.BATCH_UNIT, 52, 32
FUTURE = 4_102_444_800_000


def _batch_files(scene: Scene) -> list[Path]:
    return sorted(path for path in (scene.root / "batchconsumequeue").glob("*/*/*") if own.regular(path))


def _timer_file(scene: Scene) -> tuple[Path, int]:
    """A file of the timer log, and how many units it has."""
    path: Path = scene.pick(sorted(path for path in (scene.root / "timerlog").glob("*") if own.regular(path)))
    data, units = own.content(path), 0
    while data[units * TIMER : units * TIMER + 4] == TIMER.to_bytes(4, "big"):
        units += 1
    if not units:
        raise NotHere
    return path, units


def _existing(scene: Scene, *names: str) -> Path:
    path = scene.root.joinpath(*names)
    if not own.regular(path):
        raise NotHere
    return path


def batch_unit(scene: Scene) -> str:
    """A batch queue unit: random bytes, zeros, or another by a bit."""
    path = scene.pick(_batch_files(scene))
    data = own.content(path)
    at = scene.rng.randrange(max(1, len(data.rstrip(b"\0")) // BATCH)) * BATCH
    how = scene.rng.choice(["wild", "zero", "bit"])
    new = bytearray(data[at : at + BATCH])
    if how == "wild":
        new[:] = scene.rng.randbytes(BATCH)
    elif how == "zero":
        new[:] = bytes(BATCH)
    elif new:
        bit = scene.rng.randrange(len(new) * 8)
        new[bit // 8] ^= 1 << bit % 8
    scene.write(path, at, bytes(new))
    return f"{how} at {at} of {scene.said(path)}"


def batch_zero_tail(scene: Scene) -> str:
    """The units of a batch queue are zeros from inside one on."""
    path = scene.pick(_batch_files(scene))
    at = scene.rng.randrange(max(1, len(own.content(path).rstrip(b"\0"))))
    scene.write(path, at, bytes(path.stat().st_size - at))
    return f"{scene.said(path)} from {at}"


def batch_cut(scene: Scene) -> str:
    """A file of a batch queue is shorter, empty, or gone."""
    path = scene.pick(_batch_files(scene))
    how = scene.rng.choice(["cut", "empty", "gone"])
    if how == "gone":
        path.unlink()
    else:
        os.truncate(path, scene.rng.randrange(path.stat().st_size) if how == "cut" and path.stat().st_size else 0)
    return f"{scene.said(path)} is {how}"


def batch_lost(scene: Scene) -> str:
    """A batch queue is gone, or a topic's, or all of them."""
    path: Path = scene.pick(_batch_files(scene)).parent
    for _ in range(scene.rng.randrange(3)):
        path = path.parent
    shutil.rmtree(path)
    return scene.said(path)


def timer_unit(scene: Scene) -> str:
    """A unit of the timer log: random bytes, zeros, another chain, another message."""
    path, units = _timer_file(scene)
    number = scene.rng.choice([units - 1, scene.rng.randrange(units)])
    how = scene.rng.choice(["wild", "zero", "previous", "message", "size"])
    at = number * TIMER
    if how in ("wild", "zero"):
        scene.write(path, at, scene.rng.randbytes(TIMER) if how == "wild" else bytes(TIMER))
    elif how == "previous":
        scene.write(path, at + 4, struct.pack(">q", scene.rng.choice([-1, 0, at, at + TIMER, 7])))
    elif how == "message":
        record = scene.rng.choice(sorted(scene.facts.records))
        scene.write(path, at + 28, struct.pack(">qi", record, scene.facts.records[record][1].size))
    else:
        scene.write(path, at, struct.pack(">i", scene.rng.choice([0, 51, 53, -1])))
    return f"{how} of unit {number} of {units} in {scene.said(path)}"


def timer_tail(scene: Scene) -> str:
    """The timer log is zeros from inside a unit on, or its file is cut there."""
    path, units = _timer_file(scene)
    at = scene.rng.randrange(units * TIMER)
    cut = scene.rng.random() < 0.3
    if cut:
        os.truncate(path, at)
    else:
        scene.write(path, at, bytes(path.stat().st_size - at))
    return f"{'cut' if cut else 'zeros'} from {at} of {scene.said(path)}"


def timer_lost(scene: Scene) -> str:
    """Files of the timer are gone: a file of its log, all of it, the wheel, timercheck; or all."""
    parts = ["timerlog", "timerwheel", "config/timercheck"]
    how = scene.rng.choice([*parts, "file", "all"])
    if how == "file":
        path, _ = _timer_file(scene)
        path.unlink()
        return scene.said(path)
    gone = [scene.root / part for part in (parts if how == "all" else [how]) if (scene.root / part).exists()]
    if not gone:
        raise NotHere
    for one in gone:
        if one.is_dir():
            shutil.rmtree(one)
        else:
            one.unlink()
    return how


def wheel(scene: Scene) -> str:
    """The timer wheel: a used slot is zeros or wild, all is zeros, the file is cut or empty."""
    path = _existing(scene, "timerwheel")
    how = scene.rng.choice(["slot zero", "slot wild", "slot zero", "zeros", "cut", "empty"])
    size = path.stat().st_size
    if how.startswith("slot"):
        data = own.content(path)
        used = np.frombuffer(data[: len(data) // SLOT * SLOT], np.int64).reshape(-1, 4).any(axis=1)
        number = int(scene.pick(np.flatnonzero(used).tolist()))
        scene.write(path, number * SLOT, bytes(SLOT) if how == "slot zero" else scene.rng.randbytes(SLOT))
        return f"{how}: {number}"
    os.truncate(path, scene.rng.randrange(size + 1) if how == "cut" else 0)
    if how == "zeros":
        os.truncate(path, size)
    return how


def timer_check(scene: Scene) -> str:
    """config/timercheck: zeros, of the future, of the past, wild, cut."""
    path = _existing(scene, "config", "timercheck")
    how = scene.rng.choice(["zeros", "future", "past", "wild", "cut", "queue offset"])
    if how == "cut":
        os.truncate(path, scene.rng.randrange(40))
    elif how in ("zeros", "wild"):
        scene.write(path, 0, bytes(32) if how == "zeros" else scene.rng.randbytes(32))
    elif how == "queue offset":
        scene.write(path, 16, struct.pack(">qq", *[scene.rng.randrange(60)] * 2))
    else:
        scene.write(path, 0, struct.pack(">q", FUTURE if how == "future" else 1_500_000_000_000))
    return how


def epoch_file(scene: Scene) -> str:
    """The epochs of a controller: a file or both are gone, wild, empty; or name an epoch after the log end."""
    there = [scene.root / name for name in EPOCHS if own.regular(scene.root / name)]
    some = scene.rng.choice([there[:1], there[1:], there])
    if not some:
        raise NotHere
    how = scene.rng.choice(["gone", "wild", "empty", "ahead"])
    for path in some:
        if how == "gone":
            path.unlink()
        elif how == "ahead":
            lines = "".join(f"{line}\n" for line in path.read_text().split("\n")[2:] if line) + f"9-{10**7}\n"
            crc = zlib.crc32(lines.encode()) & 0x7FFFFFFF
            path.write_text(f"{lines.count(chr(10))}\n{crc}\n{lines}")
        else:
            path.write_bytes(b"" if how == "empty" else scene.rng.randbytes(30))
    return f"{' and '.join(map(scene.said, some))}: {how}"


def property_crc(scene: Scene) -> str:
    """A record whose property CRC tells that header, topic or properties are another by a bit."""
    offset, record, path, at = scene.record()
    if not record_with_crc(record):
        raise NotHere
    places = [*range(12, 28), *range(36, 48), *range(record.size - len(record.properties), record.size)]
    place = scene.rng.choice(places)
    scene.write(path, at + place, bytes([own.content(path)[at + place] ^ 1 << scene.rng.randrange(8)]))
    return f"byte {place} of the record at {offset}"


SHAPES = {
    "batch-unit": batch_unit,
    "batch-zero-tail": batch_zero_tail,
    "batch-cut": batch_cut,
    "batch-lost": batch_lost,
    "timer-unit": timer_unit,
    "timer-tail": timer_tail,
    "timer-lost": timer_lost,
    "timer-wheel": wheel,
    "timer-check": timer_check,
    "epoch-file": epoch_file,
    "property-crc": property_crc,
}
