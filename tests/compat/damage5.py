"""Seeded damage to stores of RocketMQ 5, worked out from what is in them: the shapes of `damage`, drawn at random."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from engine.config import StoreConfig
from engine.files.disk import Disk
from engine.inspect.store.survey import survey
from engine.log.scan import RecordBatch, Scanner
from engine.log.source import ClosedLog

from .apache import Line
from .damage import HEADER, create, delete, put, resize, zero
from .mutate import Op

PAGE = 4096
UNIT = 20
ABORT, NO_ABORT = create("abort", 0), delete("abort")
FUTURE = "000003bb2cc3d800"
FIELDS = ("size", "crc", "queueId", "queueOffset", "physicalOffset", "sysFlag", "storeTimestamp", "bodyLength")


class Scene:
    """A store to damage: its records (place, size), files and units."""

    def __init__(self, store: Path, seed: str) -> None:
        self.random = random.Random(seed)
        self.store = store
        files = survey(Disk(), StoreConfig().with_changes(store_path_root_dir=store))
        self.size = files.config.mapped_file_size_commit_log
        self.queue_size = files.config.mapped_file_size_consume_queue
        self.abort = files.abort
        self.records: list[tuple[int, int]] = []
        with ClosedLog(Disk(), files.log) as log:
            for event in Scanner(log, kernels=False).scan(0):
                if isinstance(event, RecordBatch):
                    self.records += [(event.offset(i), row.size) for i, row in enumerate(event.rows)]
        self.end = sum(self.records[-1])
        self.segments = [Path(segment.path).name for segment in files.log]
        self.queues = [
            [str(Path(file.path).relative_to(store)) for file in queue.files] for queue in files.queues if queue.files
        ]
        self.index = [f"index/{one.name}" for one in files.index]

    def log(self, offset: int) -> tuple[str, int]:
        """File and position of a byte of the log."""
        return f"commitlog/{offset // self.size * self.size:020d}", offset % self.size

    def record(self) -> tuple[int, int]:
        """One: mostly of those at the end, where recovery reads."""
        count = len(self.records)
        low = self.random.choice([0, count // 2, count * 3 // 4, count - 12])
        return self.records[self.random.randrange(max(0, low), count)]

    def unit(self) -> tuple[str, int]:
        """File and position of a unit that is one."""
        files = self.random.choice(self.queues)
        path = self.random.choice(files)
        written = len((self.store / path).read_bytes().rstrip(b"\0")) // UNIT
        return path, self.random.randrange(max(1, written)) * UNIT


def torn(s: Scene) -> list[Op]:
    """The log is zero from inside a record on, as far as its file goes."""
    at, size = s.record()
    path, place = s.log(at + s.random.randrange(size))
    return [zero(path, place, s.size - place)]


def flipped_field(s: Scene) -> list[Op]:
    """One bit of a field of a record."""
    at, _ = s.record()
    path, place = s.log(at + HEADER[s.random.choice(FIELDS)] + s.random.randrange(4))
    return [{"op": "xor", "path": path, "offset": place, "hex": f"{1 << s.random.randrange(8):02x}"}]


def flipped_byte(s: Scene) -> list[Op]:
    """One bit of a record, anywhere."""
    at, size = s.record()
    path, place = s.log(at + s.random.randrange(size))
    return [{"op": "xor", "path": path, "offset": place, "hex": f"{1 << s.random.randrange(8):02x}"}]


def total_size(s: Scene) -> list[Op]:
    """A total size that is none."""
    path, place = s.log(s.record()[0])
    return [put(path, place, s.random.choice(["00000000", "ffffffff", "7fffffff", "7ffffff0", "00000100"]))]


def magic(s: Scene) -> list[Op]:
    """Another magic: a blank's, of V2, none."""
    path, place = s.log(s.record()[0] + 4)
    return [put(path, place, s.random.choice(["cbd43194", "daa320ab", "00000000", "daa320a6"]))]


def lost_page(s: Scene) -> list[Op]:
    """A page of the log is zero."""
    path, place = s.log(s.record()[0])
    return [zero(path, place // PAGE * PAGE, PAGE)]


def segment_gone(s: Scene) -> list[Op]:
    """A file of the log is deleted."""
    return [delete(f"commitlog/{s.random.choice(s.segments)}")]


def first_gone(s: Scene) -> list[Op]:
    """The first files of the log are deleted, as retention does."""
    return [delete(f"commitlog/{name}") for name in s.segments[: s.random.randrange(1, 3)]]


def segment_zero(s: Scene) -> list[Op]:
    """A file of the log is zero."""
    return [zero(f"commitlog/{s.random.choice(s.segments)}", 0, s.size)]


def segment_empty(s: Scene) -> list[Op]:
    """The last file of the log has 0 bytes, or one more does."""
    if s.random.random() < 0.5:
        return [create(f"commitlog/{int(s.segments[-1]) + s.size:020d}", 0)]
    return [resize(f"commitlog/{s.random.choice([s.segments[-1], s.segments[1]])}", 0)]


def segment_cut(s: Scene) -> list[Op]:
    """A file of the log has another length."""
    return [resize(f"commitlog/{s.random.choice(s.segments)}", s.size - PAGE)]


def stray(s: Scene) -> list[Op]:
    """A file of another name among those of the log."""
    return [create(s.random.choice(["commitlog/note", "index/readme", "commitlog/.note"]), 10)]


def unit_zero(s: Scene) -> list[Op]:
    """Units from one on are zero, as far as their file goes."""
    path, place = s.unit()
    return [zero(path, place, s.queue_size - place)]


def unit_one(s: Scene) -> list[Op]:
    """One unit is zero, or garbage."""
    path, place = s.unit()
    new = "00" * UNIT if s.random.random() < 0.5 else s.random.randbytes(UNIT).hex()
    return [put(path, place, new)]


def unit_past(s: Scene) -> list[Op]:
    """A unit points after the log's end."""
    path, place = s.unit()
    return [put(path, place, f"{s.end + s.random.randrange(1, 5000):016x}{300:08x}{0:016x}")]


def queue_file_gone(s: Scene) -> list[Op]:
    """A file of a queue is deleted."""
    return [delete(s.random.choice(s.random.choice(s.queues)))]


def queue_last_zero(s: Scene) -> list[Op]:
    """The last file of a queue is zero: it was made, and no unit got there."""
    return [zero(s.random.choice(s.queues)[-1], 0, s.queue_size)]


def queue_next_file(s: Scene) -> list[Op]:
    """A queue has one more file: of zeros, or of 0 bytes."""
    last = s.random.choice(s.queues)[-1]
    head, _, name = last.rpartition("/")
    path = f"{head}/{int(name) + s.queue_size:020d}"
    return [create(path, s.random.choice([0, s.queue_size]))]


def queue_gone(s: Scene) -> list[Op]:
    """A queue, or all of them, is deleted."""
    one = s.random.choice(s.queues)[0].rpartition("/")[0]
    return [delete(s.random.choice([one, one, one.rpartition("/")[0], "consumequeue"]))]


def queue_cut(s: Scene) -> list[Op]:
    """A queue's file has another length."""
    return [resize(s.random.choice(s.random.choice(s.queues)), s.random.choice([0, 300]))]


def index_file(s: Scene) -> list[Op]:
    """An index file is deleted, or its header is zero, or newer than everything."""
    if not s.index:
        return [create("index/note", 3)]
    path = s.random.choice(s.index)
    return s.random.choice([[delete(path)], [zero(path, 0, 40)], [put(path, 8, FUTURE)]])


def checkpoint(s: Scene) -> list[Op]:
    """The checkpoint: missing, zero, of the future, one field of it zero."""
    one = s.random.choice([0, 8, 16, 40])
    return s.random.choice(
        [[delete("checkpoint")], [zero("checkpoint", 0, 48)], [put("checkpoint", 0, FUTURE * 3)],
         [zero("checkpoint", one, 8)], [put("checkpoint", 40, f"{s.record()[0]:016x}")], [resize("checkpoint", 0)]]
    )  # fmt: skip


def left_otherwise(s: Scene) -> list[Op]:
    """An abort file that is not there, or one that was."""
    return [NO_ABORT] if s.abort else [ABORT]


SHAPES: tuple[Callable[[Scene], list[Op]], ...] = (
    torn, flipped_field, flipped_byte, total_size, magic, lost_page, segment_gone, first_gone, segment_zero,
    segment_empty, segment_cut, stray, unit_zero, unit_one, unit_past, queue_file_gone, queue_last_zero,
    queue_next_file, queue_gone, queue_cut, index_file, checkpoint, left_otherwise,
)  # fmt: skip


def cases(base: str, store: Path, count: int) -> list[Line]:
    """`count` damaged stores of a base: each shape in turn, every second one left otherwise, too, or damaged twice."""
    made: list[Line] = []
    for number in range(count):
        scene = Scene(store, f"{base}-{number}")
        shape = SHAPES[number % len(SHAPES)]
        ops, note = shape(scene), shape.__name__
        more = (number // len(SHAPES)) % 3
        if more == 1 and shape is not left_otherwise:
            ops, note = [*ops, *left_otherwise(scene)], f"{note}+left_otherwise"
        elif more == 2:
            other = scene.random.choice(SHAPES)
            ops, note = [*ops, *other(scene)], f"{note}+{other.__name__}"
        made.append({"id": f"{base}-{number:03d}", "base": base, "note": note, "ops": ops})
    return made
