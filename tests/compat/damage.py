"""The damage that the differential cases do to the fixtures, worked out from what is in them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from . import fixtures
from .apache import Line
from .mutate import Op

PAGE = 4096
UNIT = 20
FUTURE = "000003bb2cc3d800"
HEADER = {
    "size": 0,
    "crc": 8,
    "queueId": 12,
    "flag": 16,
    "queueOffset": 20,
    "physicalOffset": 28,
    "sysFlag": 36,
    "bornTimestamp": 40,
    "storeTimestamp": 56,
    "preparedTransactionOffset": 76,
    "bodyLength": 84,
}
"""Where fields start in a record with IPv4 hosts."""


@dataclass
class Base:
    """A fixture to damage."""

    name: str
    cases: list[Line] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.name)
        lines = list(fixtures.dump(self.name))
        self.log = [line for line in lines if line["type"] == "log"]
        self.queues = {(q["topic"], q["queueId"]): q["max"] for q in lines if q["type"] == "queue"}
        self.files = [file["path"] for file in lines[1]["files"]]
        sizes = fixtures.sizes(self.name)
        self.size, self.queue_size = sizes.commitlog_file, sizes.queue_file
        self.end = self.log[-1]["physicalOffset"] + self.log[-1]["size"]

    @property
    def last(self) -> int:
        """The number of the last file with a record in it."""
        return int(self.end - 1) // self.size

    def add(self, category: str, note: str, *ops: Op) -> None:
        """Adds a case."""
        self.cases.append({"base": self.name, "category": category, "note": note, "ops": list(ops)})

    def path(self, number: int) -> str:
        """A commit log file, by number."""
        return f"commitlog/{number * self.size:020d}"

    def index_files(self) -> list[str]:
        """The index files, oldest first."""
        return sorted(path for path in self.files if path.startswith("index/"))

    def pick(self, number: int, smallest: int = 150) -> Line:
        """A plain message in the inner of a commit log file."""
        low, high = number * self.size + 2 * PAGE, min((number + 1) * self.size, self.end) - PAGE
        fit = [
            record
            for record in self.log
            if low <= record["physicalOffset"] < high
            and record["size"] >= smallest
            and record["bodyLen"] > 50
            and record["sysFlag"] == 0
            and record["keys"]
            and record["tags"]
        ]
        return self.random.choice(fit)

    def at(self, record: Line, inside: int = 0) -> tuple[str, int]:
        """The file and the place in it of a byte of a record."""
        offset = record["physicalOffset"] + inside
        return self.path(offset // self.size), offset % self.size

    def xor(self, record: Line, inside: int, mask: str = "01") -> Op:
        """Flips bits of a record."""
        path, offset = self.at(record, inside)
        return {"op": "xor", "path": path, "offset": offset, "hex": mask}

    def write(self, record: Line, inside: int, new: str) -> Op:
        """Replaces bytes of a record."""
        path, offset = self.at(record, inside)
        return {"op": "write", "path": path, "offset": offset, "hex": new}

    def zero_from(self, record: Line, inside: int) -> Op:
        """Zeroes a commit log file from the inside of a record on."""
        path, offset = self.at(record, inside)
        return {"op": "zero", "path": path, "offset": offset, "length": self.size - offset}

    def lose_page(self, record: Line) -> Op:
        """Zeroes the page that a record starts in."""
        path, offset = self.at(record)
        return {"op": "zero", "path": path, "offset": offset // PAGE * PAGE, "length": PAGE}

    def unit(self, topic: str, queue_id: int, number: int) -> tuple[str, int]:
        """The file and the place in it of a queue's unit."""
        offset = number * UNIT
        first = offset // self.queue_size * self.queue_size
        return f"consumequeue/{topic}/{queue_id}/{first:020d}", offset - first


def where(record: Line) -> str:
    """A record, for a note."""
    return f"record at {record['physicalOffset']} ({record['topic'][:12]}/{record['queueId']} #{record['queueOffset']})"


def delete(path: str) -> Op:
    """Deletes a file or a directory."""
    return {"op": "delete", "path": path}


def create(path: str, size: int) -> Op:
    """Creates a file of zeros."""
    return {"op": "create", "path": path, "size": size}


def resize(path: str, size: int) -> Op:
    """Cuts or extends a file."""
    return {"op": "resize", "path": path, "size": size}


def zero(path: str, offset: int, length: int) -> Op:
    """Zeroes a part of a file."""
    return {"op": "zero", "path": path, "offset": offset, "length": length}


def put(path: str, offset: int, new: str) -> Op:
    """Replaces bytes of a file."""
    return {"op": "write", "path": path, "offset": offset, "hex": new}


ABORT = create("abort", 0)
CHECKPOINT_ZERO = zero("checkpoint", 0, 24)


def all_cases() -> Iterator[Line]:
    """Every case, numbered."""
    crashed, clean, ext, lmq = (Base(name) for name in ("crashed-small", "clean-small", "transient-ext", "lmq"))
    for base in (crashed, clean, ext, lmq):
        base.add("none", "nothing done to it")
    for base in (crashed, clean):
        _torn(base)
        _flips(base)
        _pages(base)
        _queues(base)
        _indexes(base)
    _magics(crashed)
    _log_files(crashed)
    _log_files_closed(clean)
    _checkpoints(crashed)
    _combos(crashed, clean)
    _further(ext, lmq)
    cases = [case for base in (crashed, clean, ext, lmq) for case in base.cases]
    for number, case in enumerate(cases, 1):
        yield {"id": f"f{number:03d}", **case}


def _torn(base: Base) -> None:
    final = base.log[-1]
    base.add("torn-tail-inside", f"zero from inside the last {where(final)}", base.zero_from(final, 60))
    full = next(record for record in reversed(base.log[:-1]) if record["bodyLen"] > 100 and record["sysFlag"] == 0)
    base.add("torn-tail-inside", f"zero from inside the body of the {where(full)}", base.zero_from(full, 120))
    light = next(record for record in reversed(base.log[:-1]) if record["bodyLen"] == 0)
    base.add("torn-tail-inside", f"zero from the properties on of the {where(light)}", base.zero_from(light, 130))
    tenth = base.log[-10]
    base.add("torn-tail-boundary", f"zero from the start of the {where(tenth)}", base.zero_from(tenth, 0))
    inner = base.pick(base.last - 1)
    base.add(
        "torn-inner-file", f"zero to the end of the file from inside the {where(inner)}", base.zero_from(inner, 70)
    )


def _flips(base: Base) -> None:
    names = ["crc", "queueId", "queueOffset", "physicalOffset", "sysFlag", "bodyLength"]
    names = names if base.name == "crashed-small" else ["crc", "size", "flag", "storeTimestamp", "physicalOffset"]
    for name in names:
        record = base.pick(base.last if base.name == "crashed-small" else base.last - 1)
        base.add("flip-header", f"one bit of {name} of the {where(record)}", base.xor(record, HEADER[name] + 3, "10"))
    for what in ("body", "topic", "properties"):
        record = base.pick(base.last)
        inside = 88 + {"body": record["bodyLen"] // 2, "topic": record["bodyLen"] + 2, "properties": 0}[what]
        if what == "properties":
            inside = record["size"] - 4
        base.add("flip-content", f"one bit of the {what} of the {where(record)}", base.xor(record, inside, "01"))
    early = base.pick(0)
    base.add("flip-content", f"one bit of the body of the early {where(early)}", base.xor(early, 100))


def _pages(base: Base) -> None:
    for number in (base.last, base.last - 1, 0):
        record = base.pick(number)
        base.add("lost-page", f"the page with the start of the {where(record)} is zero", base.lose_page(record))


def _magics(base: Base) -> None:
    for new, what in (("00000000", "0"), ("ffffffff", "-1"), ("7fffffff", "2147483647")):
        record = base.pick(base.last)
        base.add("total-size", f"total size {what} at the {where(record)}", base.write(record, 0, new))
    record = base.pick(base.last)
    longer = f"{record['size'] + 1:08x}"
    base.add("total-size", f"total size one too long at the {where(record)}", base.write(record, 0, longer))
    for new, what in (("daa320a6", "one bit"), ("cbd43194", "a blank's magic"), ("daa320ab", "the magic of 5.x")):
        record = base.pick(base.last - 1)
        base.add("magic", f"{what} in the magic of the {where(record)}", base.write(record, 4, new))


def _log_files(base: Base) -> None:
    last, spare = base.path(base.last), base.path(base.last + 1)
    base.add("log-file-zeroed", "last used file zero", zero(last, 0, base.size))
    base.add("log-file-deleted", "first file deleted", delete(base.path(0)))
    base.add("log-file-deleted", "middle file deleted", delete(base.path(base.last - 2)))
    base.add("log-file-deleted", "last used file deleted, the empty one behind it kept", delete(last))
    base.add("log-file-deleted", "last used file and the empty one deleted", delete(last), delete(spare))
    base.add("log-file-deleted", "commitlog/ deleted", delete("commitlog"))
    base.add("log-file-size", "the empty last file has 0 bytes", resize(spare, 0))
    base.add("log-file-stray", "a small file of another name", create("commitlog/.note", 10))


def _log_files_closed(base: Base) -> None:
    last = base.path(base.last)
    base.add("abort", "abort added", ABORT)
    base.add("log-file-zeroed", "last file zero", zero(last, 0, base.size))
    base.add("log-file-deleted", "last file deleted", delete(last))
    base.add("log-file-deleted", "middle file deleted", delete(base.path(1)))
    base.add("log-file-size", "last file one byte too long", resize(last, base.size + 1))
    base.add("log-file-size", "first file cut by one page", resize(base.path(0), base.size - PAGE))


def _queues(base: Base) -> None:
    units = base.queues["Hot", 0]
    path, offset = base.unit("Hot", 0, units - 1)
    base.add("cq-tail", "the last unit of Hot/0 zero", zero(path, offset, UNIT))
    units_there = offset // UNIT + 1
    base.add("cq-tail", "all units in the last file of Hot/0 zero", zero(path, 0, units_there * UNIT))
    base.add("cq-file", "last file of Hot/0 deleted", delete(path))
    base.add("cq-deleted", "queue Hot/0 deleted", delete("consumequeue/Hot/0"))
    base.add("cq-deleted", "consumequeue/ deleted", delete("consumequeue"))
    other = base.queues["Orders", 2]
    path, offset = base.unit("Orders", 2, other // 2)
    base.add("cq-cut", f"unit {other // 2} of {other} of Orders/2 zero", zero(path, offset, UNIT))
    garbage = base.random.randbytes(UNIT).hex()
    base.add("cq-garbage", f"unit {other // 2} of {other} of Orders/2 replaced", put(path, offset, garbage))
    path, offset = base.unit("Orders", 2, other)
    past = f"{base.end + 1000:016x}{300:08x}{0:016x}"
    base.add("cq-past-end", "a unit more in Orders/2, which points past the log's end", put(path, offset, past))


def _indexes(base: Base) -> None:
    newest = base.index_files()[-1]
    base.add("index", "newest index file deleted", delete(newest))
    base.add("index", "header of the newest index file zero", zero(newest, 0, 40))
    if base.name == "crashed-small":
        base.add("index", "index/ deleted", delete("index"))
        base.add("index", "a file of another name in index/", create("index/readme", 100))


def _checkpoints(base: Base) -> None:
    base.add("checkpoint", "checkpoint deleted", delete("checkpoint"))
    base.add("checkpoint", "checkpoint zero", CHECKPOINT_ZERO)
    base.add("checkpoint", "checkpoint in the far future", put("checkpoint", 0, FUTURE * 3))
    base.add("checkpoint", "time of the log zero", zero("checkpoint", 0, 8))
    base.add("checkpoint", "time of the index zero", zero("checkpoint", 16, 8))
    base.add("checkpoint", "checkpoint cut to 0 bytes", resize("checkpoint", 0))


def _combos(crashed: Base, clean: Base) -> None:
    early = crashed.pick(0)
    crashed.add(
        "combo", f"checkpoint zero, a body bit of the early {where(early)}", CHECKPOINT_ZERO, crashed.xor(early, 100)
    )
    crashed.add("combo", "checkpoint zero, consumequeue/ deleted", CHECKPOINT_ZERO, delete("consumequeue"))
    crashed.add("combo", "consumequeue/ and index/ deleted", delete("consumequeue"), delete("index"))
    tenth = crashed.log[-10]
    crashed.add("combo", "torn tail, abort removed", crashed.zero_from(tenth, 40), delete("abort"))
    page = crashed.pick(crashed.last - 1)
    crashed.add(
        "combo",
        f"page lost at the {where(page)}, checkpoint in the far future",
        crashed.lose_page(page),
        put("checkpoint", 0, FUTURE * 3),
    )
    clean.add(
        "combo", "abort added, checkpoint zero, consumequeue/ deleted", ABORT, CHECKPOINT_ZERO, delete("consumequeue")
    )
    clean.add("combo", "consumequeue/ deleted, first log file deleted", delete("consumequeue"), delete(clean.path(0)))
    clean.add("combo", "consumequeue/ deleted, second log file deleted", delete("consumequeue"), delete(clean.path(1)))
    clean.add("combo", "torn tail, abort added", clean.zero_from(clean.log[-4], 30), ABORT)


def _further(ext: Base, lmq: Base) -> None:
    ext.add("cq-ext", "consumequeue_ext/ deleted", delete("consumequeue_ext"))
    ext.add("cq-ext", "consumequeue/ deleted, its extension kept", delete("consumequeue"))
    ext.add("cq-ext", "an extension file zero", zero("consumequeue_ext/Hot/0/" + "0" * 20, 0, 1024))
    ext.add("cq-ext", "torn tail", ext.zero_from(ext.log[-5], 20))
    ext.add("cq-ext", "abort added, checkpoint zero", ABORT, CHECKPOINT_ZERO)
    lmq.add("cq-lmq", "a light queue deleted", delete("consumequeue/%LMQ%red"))
    lmq.add("cq-lmq", "consumequeue/ deleted", delete("consumequeue"))
    lmq.add("cq-lmq", "torn tail", lmq.zero_from(lmq.log[-5], 20))
    lmq.add(
        "cq-lmq", "abort added, checkpoint zero, consumequeue/ deleted", ABORT, CHECKPOINT_ZERO, delete("consumequeue")
    )
