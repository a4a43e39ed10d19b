"""What is measured, on which workloads, against which of Apache's methods, and how much is asked for.

The words here are those of the report: `what` a user gets, `ours` and `theirs` what exactly is inside the two times.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field

from engine.bench.stores import CopyState
from engine.bench.workload import LARGE, QUEUES_PER_TOPIC, SPARSE, START, sealed_name
from engine.dataclass import dataclass

RECORDS = ("b1k", "b128", "queues", "b64k")
PLAIN = ("b1k", "b128")
SEALED = tuple(map(sealed_name, PLAIN))
_LOAD_CRASHED = (
    "DefaultMessageStore#load() (abort file: every record read with its CRC, dispatched to queues and index)"
)


LIMITS = "limits"
LISTED = 200_000
"""Messages of a queue that are printed."""


class Size(enum.Enum):
    """How many messages a job handles: all of the log, or so many."""

    LOG = "log"
    PUTS = "puts"
    LINES = "lines"
    SYNC = "sync"
    GETS = "gets"
    LOOKUPS = "lookups"
    LISTED = "listed"
    ONE = "one"

    def count(self, messages: int, callers: int) -> int:
        """How many of a log's messages."""
        most = {
            Size.LOG: messages,
            Size.PUTS: 1 << 20,
            Size.LINES: 200_000,
            Size.SYNC: 1000 + 300 * callers,
            Size.GETS: 1_000_000,
            Size.LOOKUPS: 20_000,
            Size.LISTED: min(LISTED, messages // QUEUES_PER_TOPIC),
            Size.ONE: 1,
        }
        return min(messages, most[self])


@dataclass(frozen=True, slots=True)
class Job:
    """One job.

    Attributes:
        name: on the command line.
        what: in a line.
        ours: what our time has inside.
        theirs: what Apache's has; its program's job is `apache`, None: no counterpart.
        state: of the store that it runs on; None: a new, empty one.
        workloads: on which it runs unless asked otherwise.
        size: how many messages.
        callers: threads that put.
        settings: Apache's settings beside the sizes, on both sides.
        command: words of the command line that do the same: a whole process, with its start. `{topic}`, `{middle}`
            and `{lines}` in them are the first topic, the middle of its first queue, and a file of the messages to put.
        inside: whether there is a measure without the start of a process, too.
        cold: whether a cold page cache is measured where that is asked for; otherwise it is warm.
        kafka: whether Kafka's `kafka-dump-log` does the like of the command, on a log of its own.
        exits: exit codes with which the command has done its work: 1 says that there was something to find.
    """

    name: str
    what: str
    ours: str
    theirs: str = ""
    apache: str | None = None
    state: CopyState | None = None
    workloads: tuple[str, ...] = PLAIN
    size: Size = Size.LOG
    callers: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] | None = None
    inside: bool = True
    cold: bool = False
    kafka: bool = False
    exits: tuple[int, ...] = (0,)


def _sync(callers: int) -> Job:
    return Job(
        f"put-sync-{callers}",
        f"put, SYNC_FLUSH, {callers} caller{'s' if callers > 1 else ''}",
        "MessageStore.put from that many threads, until the last answer",
        "putMessage from that many threads, until the last answer",
        "put-callers",
        workloads=("b128",),
        size=Size.SYNC,
        callers=callers,
        settings={"flushDiskType": "SYNC_FLUSH"},
    )


def _look(name: str, what: str, *words: str, state: CopyState = CopyState.CLOSED, exits: tuple[int, ...] = (0,)) -> Job:
    """A command (its `words`) that looks at a store of a hundred files, and changes nothing."""
    return Job(
        name,
        what,
        "",
        state=state,
        workloads=(SPARSE,),
        size=Size.ONE,
        command=words,
        inside=False,
        exits=exits,
    )


def _start(name: str, what: str, *words: str, state: CopyState) -> Job:
    """A command (its `words`) on a log that is just long enough to be read by kernels: what its start takes."""
    return Job(name, what, "", state=state, workloads=(START,), command=words, inside=False, exits=(0, 1))


def _printed(name: str, what: str, *words: str, size: Size = Size.LOG) -> Job:
    """A command (its `words`) that prints much of a closed store."""
    return Job(name, what, "", state=CopyState.CLOSED, workloads=("b1k",), size=size, command=words, inside=False)


JOBS = (
    Job(
        LIMITS,
        "the machine: the log's bytes read once, and CRC-32 by a library, all cores",
        "sum over the map (numpy); zlib and isal in pieces of 1 MiB",
        state=CopyState.BARE,
        workloads=("b1k", "b128", "b64k"),
    ),
    Job(
        "recover-rebuilt",
        "abnormal recovery, queues and index rebuilt",
        "lock, plan_recover, apply: on disk when it ends",
        _LOAD_CRASHED,
        "load",
        CopyState.LOG_ONLY,
        RECORDS,
        command=("recover", "--yes"),
        cold=True,
    ),
    Job(
        "recover-queues",
        "abnormal recovery of what a killed broker leaves, untouched",
        "lock, plan_recover, apply: on disk when it ends",
        _LOAD_CRASHED,
        "load",
        CopyState.CRASHED,
        RECORDS,
        command=("recover", "--yes"),
        cold=True,
    ),
    Job(
        "open",
        "normal open of a closed store",
        "MessageStore.open: lock, recovery, services",
        "DefaultMessageStore#load() and #start()",
        "open",
        CopyState.CLOSED,
        RECORDS,
        cold=True,
    ),
    Job(
        "verify-crc",
        "every record's lengths, offset and CRC",
        "engine.inspect.check.verify.verify",
        "its recovery scan: load() of the log alone, closed (recoverNormally: every record of the last three files "
        "with its CRC, nothing dispatched)",
        "load",
        CopyState.BARE,
        ("b1k", "b128", "b64k", *SEALED),
        command=("verify-crc",),
        cold=True,
    ),
    Job(
        "check",
        "log, queues, index and config against each other",
        "engine.inspect.check.check.check",
        state=CopyState.CLOSED,
        workloads=(*PLAIN, LARGE),
        command=("check",),
        cold=True,
    ),
    Job(
        "plan-start",
        "plan-start on what a killed broker leaves",
        "",
        state=CopyState.CRASHED,
        workloads=(*PLAIN, LARGE),
        command=("plan-start",),
        inside=False,
    ),
    Job(
        "reindex",
        "queues and index rebuilt from the log",
        "lock, build apart, compare, replace: on disk when it ends",
        "its full rebuild: load() of the log alone with an abort file",
        "load",
        CopyState.BARE,
        command=("reindex", "--yes"),
        cold=True,
    ),
    Job(
        "put-one",
        "put one by one, one queue, ASYNC_FLUSH",
        "message objects made and MessageStore.put, one thread, until the last answer",
        "message objects made and putMessage, one thread, until the last answer",
        "put-one",
        size=Size.PUTS,
    ),
    Job(
        "put-batch",
        "put in batches of 1024, one queue, ASYNC_FLUSH",
        "the client's bytes taken as columns and MessageStore.put_columns, one thread, until the last answer",
        "putMessages with the client's bytes, one thread, until the last answer",
        "put-batch",
        size=Size.PUTS,
    ),
    Job(
        "put-items",
        "the same batches as objects",
        "the client's bytes decoded and MessageStore.put_batch, one thread, until the last answer",
        "putMessages with the client's bytes, one thread, until the last answer",
        "put-batch",
        size=Size.PUTS,
    ),
    Job(
        "put-jsonl",
        "put of 200,000 messages from JSON lines",
        "PutRun.blocks of message objects, one thread, until the last one is put",
        size=Size.LINES,
        command=("put", "--jsonl", "{lines}"),
    ),
    _sync(1),
    _sync(16),
    _sync(64),
    Job(
        "get-raw",
        "get, 32 a call, the records as stored",
        "MessageStore.get over whole queues",
        "getMessage over whole queues",
        "get-raw",
        CopyState.CLOSED,
        size=Size.GETS,
        cold=True,
    ),
    Job(
        "get-decoded",
        "get, 32 a call, decoded objects",
        "MessageStore.get, each record decoded, its properties parsed",
        "getMessage, each record through MessageDecoder#decode",
        "get-decoded",
        CopyState.CLOSED,
        size=Size.GETS,
    ),
    Job(
        "get-columns",
        "get, 32 a call, as columns",
        "MessageStore.get_columns over whole queues, every field a column",
        "getMessage, each record through MessageDecoder#decode",
        "get-decoded",
        CopyState.CLOSED,
        size=Size.GETS,
    ),
    Job(
        "query",
        "query by key, one message each",
        "MessageStore.query",
        "queryMessage (which leaves messages whose keys have the same hash to the client)",
        "query",
        CopyState.CLOSED,
        ("b1k",),
        Size.LOOKUPS,
    ),
    Job(
        "get-by-time",
        "the offset at a time, and 32 messages from there",
        "offset_by_time, then get",
        "getOffsetInQueueByTime, then getMessage",
        "get-by-time",
        CopyState.CLOSED,
        ("b1k",),
        Size.LOOKUPS,
    ),
    Job(
        "dump",
        "the whole log as JSON lines, into nothing",
        "",
        state=CopyState.CLOSED,
        command=("dump", "commitlog", "--json"),
        inside=False,
        kafka=True,
    ),
    _printed("dump-index", "the entries of all index files as JSON lines, into nothing", "dump", "index", "--json"),
    _printed(
        "dump-queue",
        "200,000 units of a queue as JSON lines, into nothing",
        *("dump", "consumequeue", "{topic}", "0", "--limit", str(LISTED), "--json"),
        size=Size.LISTED,
    ),
    _printed(
        "get-json",
        "200,000 messages of a queue as JSON lines, into nothing",
        *("get", "{topic}", "0", "--count", str(LISTED), "--json"),
        size=Size.LISTED,
    ),
    _look("help", "rstore --help", "--help", state=CopyState.BARE),
    _look(
        "get-first",
        "rstore get of one message, from the middle of a queue",
        *("get", "{topic}", "0", "{middle}", "--count", "1"),
    ),
    _look("status", "rstore status", "status", exits=(0, 1)),
    _look("doctor", "rstore doctor", "doctor", exits=(0, 1)),
    _look(
        "expire",
        "rstore expire --dry-run: the retention of every file is over",
        *("expire", "--force", "--dry-run"),
        exits=(0, 1),
    ),
    _start("start-verify-crc", "verify-crc of 24 MiB: its start", "verify-crc", state=CopyState.BARE),
    _start("start-recover", "recover of 24 MiB: its start", "recover", "--yes", state=CopyState.CRASHED),
    _start("start-check", "check of 24 MiB: its start", "check", state=CopyState.CLOSED),
)
BY_NAME = {job.name: job for job in JOBS}
GROWN = ("recover-rebuilt", "verify-crc")
"""Jobs that are measured on growing logs: what a message costs should not depend on how many there are."""


class Against(enum.Enum):
    """What a floor is held against."""

    INSIDE = "ratio, start not counted"
    WHOLE = "ratio, whole process"
    KAFKA = "ratio, whole process, against kafka-dump-log"
    OTHER = "seconds, whole process, to those of another command"
    PLAIN = "seconds a message, whole process, to those without property CRCs"
    CRC = "share of the fastest CRC library"
    SECONDS = "seconds, whole process"
    MEMORY = "MiB beyond mapped files"


@dataclass(frozen=True, slots=True)
class Floor:
    """What a job has to show: at least `value`, or at most where it is seconds or MiB. Source: the project's goals.

    `peer`: the job whose Apache figure it is held against (default: its own), or whose seconds, for Against.OTHER;
    the workload whose seconds, for Against.PLAIN.
    `cold`: with a cold page cache.
    """

    job: str
    workload: str
    against: Against
    value: float
    peer: str | None = None
    cold: bool = False

    @property
    def is_ceiling(self) -> bool:
        """Whether less is better."""
        return self.against in (Against.SECONDS, Against.MEMORY, Against.OTHER, Against.PLAIN)


FLOORS = (
    *(Floor("recover-rebuilt", workload, Against.INSIDE, 4.0) for workload in PLAIN),
    Floor("recover-queues", "b128", Against.WHOLE, 3.0),
    Floor("recover-queues", "b1k", Against.WHOLE, 2.0),
    Floor("recover-queues", "b128", Against.WHOLE, 1.0, cold=True),
    Floor("recover-queues", "b1k", Against.WHOLE, 1.0, cold=True),
    Floor("recover-rebuilt", "b128", Against.WHOLE, 1.5),
    Floor("recover-rebuilt", "b1k", Against.WHOLE, 1.5),
    Floor("verify-crc", "b1k", Against.INSIDE, 3.0),
    Floor("verify-crc", "b1k", Against.CRC, 0.6),
    *(Floor("verify-crc", sealed_name(plain), Against.PLAIN, 1.25, peer=plain) for plain in PLAIN),
    Floor("reindex", "b1k", Against.INSIDE, 3.0),
    Floor("reindex", "b128", Against.INSIDE, 3.0),
    Floor("put-batch", "b128", Against.INSIDE, 2.0, peer="put-one"),
    *(Floor("put-one", workload, Against.INSIDE, 0.6) for workload in PLAIN),
    *(Floor("put-items", workload, Against.INSIDE, 0.8) for workload in PLAIN),
    Floor("put-jsonl", "b1k", Against.SECONDS, 1.33),
    Floor("put-jsonl", "b1k", Against.MEMORY, 200.0),
    Floor("help", SPARSE, Against.SECONDS, 0.2),
    Floor("get-first", SPARSE, Against.SECONDS, 0.4),
    *(Floor(job, SPARSE, Against.SECONDS, 1.0) for job in ("status", "doctor", "expire")),
    *(Floor(job, START, Against.SECONDS, 0.25) for job in ("start-verify-crc", "start-recover", "start-check")),
    Floor("plan-start", LARGE, Against.OTHER, 1.5, peer="check"),
    Floor("get-columns", "b128", Against.INSIDE, 1.0),
    *(Floor("get-raw", workload, Against.INSIDE, 0.8) for workload in PLAIN),
    *(Floor("get-decoded", workload, Against.INSIDE, 0.4) for workload in PLAIN),
    Floor("query", "b1k", Against.INSIDE, 0.8),
    Floor("open", "queues", Against.INSIDE, 1.0),
    Floor("dump", "b1k", Against.SECONDS, 3.0),
    *(Floor("dump", workload, Against.KAFKA, 1.0) for workload in PLAIN),
    Floor("dump-index", "b1k", Against.SECONDS, 1.2),
    Floor("dump-queue", "b1k", Against.SECONDS, 0.35),
    Floor("get-json", "b1k", Against.SECONDS, 1.333),
    *(Floor(job, workload, Against.MEMORY, 300.0) for job in ("recover-rebuilt", "verify-crc") for workload in PLAIN),
    *(Floor(job, "b1k", Against.MEMORY, 300.0) for job in ("dump", "get-json")),
)
