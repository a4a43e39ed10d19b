"""Our side of each job: the engine call that the command or a user's program makes, and nothing else, inside the timer.

One small function a job, so that each says by itself what is timed. All of them run in a process of their own
(`engine.bench.child`). Modules are imported and kernels loaded before: a run on a small store comes first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from engine.bench.timing import Done, MeasureTask, Timer
from engine.bench.workload import BORN_MS, QUEUES_PER_TOPIC, bodies
from engine.config import FlushDiskType
from engine.errors import StorageError
from engine.files.disk import Disk
from engine.files.lock import StoreLock
from engine.log.results import GetMessageStatus

if TYPE_CHECKING:
    from pathlib import Path

    from engine.format.message import Message
    from engine.log.results import GetResult, PutResult
    from engine.store import MessageStore

POOL = 1024
"""Different messages that the puts go round in, on both sides."""
BATCH = 1024
"""Messages of a batch, on both sides."""
BLOCK = 240
"""Messages of a block, as many as `put --jsonl` reads at a time where their bodies have 1 KiB."""
PULL = 32
_DISPATCH_MS = 600_000

Work = Callable[[MeasureTask, Timer], Done]


# --- closed stores ---------------------------------------------------------------------------------------------------


def recover(task: MeasureTask, timed: Timer) -> Done:
    """`rstore recover`: lock, plan, apply."""
    from engine.repair.recover.apply import apply
    from engine.repair.recover.recover import plan_recover

    disk = Disk()
    with timed(), StoreLock(disk, str(task.root)):
        plan = plan_recover(disk, task.config, locked=True)
        apply(disk, plan)
    return Done(task.messages)


def verify(task: MeasureTask, timed: Timer) -> Done:
    """`rstore verify-crc`."""
    from engine.inspect.check.verify import verify as run

    with timed():
        verified = run(Disk(), task.config)
    if verified.bad:
        raise StorageError("the log of the bench is not sound", path=task.root, offset=verified.bad[0].offset)
    return Done(verified.records, verified.size)


def check(task: MeasureTask, timed: Timer) -> Done:
    """`rstore check`."""
    from engine.inspect.check.check import check as run

    with timed():
        checked = run(Disk(), task.config, jobs=None)
    if not checked.ok:
        raise StorageError(f"the store of the bench is not sound: {checked.findings[0]}", path=task.root)
    return Done(task.messages)


def reindex(task: MeasureTask, timed: Timer) -> Done:
    """`rstore reindex`: build queues and index aside, compare, swap in."""
    from engine.repair.reindex import swap as reindex_swap
    from engine.repair.reindex.reindex import Scope, build

    disk, root = Disk(), str(task.root)
    with timed(), StoreLock(disk, root):
        into = reindex_swap.build_directory(root)
        disk.mkdirs(into)
        plan = build(disk, task.config, into, Scope())
        reindex_swap.swap(disk, plan)
    return Done(plan.records)


# --- open stores -----------------------------------------------------------------------------------------------------


def open_store(task: MeasureTask, timed: Timer) -> Done:
    """From nothing to a store that takes puts."""
    from engine.store import MessageStore

    with timed():
        store = MessageStore.open(task.config)
    store.close()
    return Done(task.messages)


def put_one(task: MeasureTask, timed: Timer) -> Done:
    """`count` messages, made and put one by one in one thread; ends with the last answer, not with its dispatch."""
    messages = _Messages(task)
    with _opened(task) as store:
        with timed():
            for number in range(task.count):
                _demand(store.put(messages.of(number)))
        return _dispatched(store, task, timed)


def put_batch(task: MeasureTask, timed: Timer) -> Done:
    """`count` messages in batches of `BATCH`, each from the bytes that a client sends, taken as columns."""
    from engine.log.frames import columns_of

    return _put_frames(task, timed, lambda store, shared, frame: store.put_columns(shared, columns_of(frame)))


def put_list(task: MeasureTask, timed: Timer) -> Done:
    """`count` messages in blocks, as `rstore put --jsonl` puts them when they are parsed."""
    from engine.put_run import PutRun

    messages = _Messages(task)
    with _opened(task) as store:
        run = PutRun(store)
        with timed():
            firsts = range(0, task.count, BLOCK)
            blocks = ([messages.of(n) for n in range(at, min(at + BLOCK, task.count))] for at in firsts)
            for _ in run.blocks(blocks, answers=False):
                pass
        return _dispatched(store, task, timed)


def write_lines(task: MeasureTask, path: Path) -> None:
    """The messages of `put_list` as `rstore put --jsonl` takes them, their bodies as text of the same length."""
    import json

    messages = _Messages(task)
    with path.open("w", encoding="ascii") as file:
        for number in range(task.count):
            message = messages.of(number)
            text = message.body.hex()[: len(message.body)]
            line = {"topic": message.topic, "body": text, "properties": dict(message.properties)}
            file.write(json.dumps(line) + "\n")


def put_items(task: MeasureTask, timed: Timer) -> Done:
    """The same batches, each message of the client's bytes an object."""
    from engine.log.decoded import decoded_items

    return _put_frames(task, timed, lambda store, shared, frame: (store.put_batch(shared, decoded_items(frame)),))


def _put_frames(
    task: MeasureTask, timed: Timer, put: Callable[[MessageStore, Message, bytes], tuple[PutResult, ...]]
) -> Done:
    messages = _Messages(task)
    encoded = messages.batches()
    shared = messages.of(0)
    with _opened(task) as store:
        with timed():
            for number in range(task.count // BATCH):
                for answer in put(store, shared, encoded[number % len(encoded)]):
                    _demand(answer)
        return _dispatched(store, task, timed)


def put_sync(task: MeasureTask, timed: Timer) -> Done:
    """`count` messages under SYNC_FLUSH by `callers` threads."""
    import threading

    messages = _Messages(task)
    failed: list[BaseException] = []
    with _opened(task, flush_disk_type=FlushDiskType.SYNC_FLUSH) as store:

        def call(first: int) -> None:
            try:
                for number in range(first, task.count, task.callers):
                    _demand(store.put(messages.of(number)))
            except BaseException as error:
                failed.append(error)
                raise

        threads = [threading.Thread(target=call, args=(i,)) for i in range(task.callers)]
        with timed():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if failed:
            raise failed[0]
    return Done(task.count)


def get_raw(task: MeasureTask, timed: Timer) -> Done:
    """32 a call, queue after queue, the records as they are stored."""
    return _get(task, timed, lambda got: got.messages)


def get_decoded(task: MeasureTask, timed: Timer) -> Done:
    """The same, each record as an object with its properties parsed, as MessageDecoder#decode gives."""

    def use(answer: GetResult) -> None:
        for message in answer.decoded():
            _ = message.properties

    return _get(task, timed, use)


def get_columns(task: MeasureTask, timed: Timer) -> Done:
    """The same as columns: every field of 32 records in one pass."""
    return _get(task, timed, lambda answer: answer.columns(), columns=True)


def query(task: MeasureTask, timed: Timer) -> Done:
    """`count` keys, each of one message, by chance over the whole log."""
    chance = random.Random(1)
    numbers = [chance.randrange(task.messages) for _ in range(task.count)]
    wanted = [(task.workload.topic(n % task.workload.queues), task.workload.key_of(n)) for n in numbers]
    with _opened(task) as store, timed():
        for topic, key in wanted:
            if len(store.query(topic, key).messages) != 1:
                raise StorageError(f"{key} is not found", path=task.root)
    return Done(task.count)


def get_by_time(task: MeasureTask, timed: Timer) -> Done:
    """`count` store times by chance: the offset at each, and one get of 32 from there."""
    chance = random.Random(2)
    queues = task.workload.queues
    wanted = [
        (chance.randrange(queues), task.first_ms + chance.randrange(max(1, task.messages // task.per_ms)))
        for _ in range(task.count)
    ]
    with _opened(task) as store, timed():
        for queue, time_ms in wanted:
            topic, queue_id = task.workload.topic(queue), queue % QUEUES_PER_TOPIC
            store.get(topic, queue_id, store.offset_by_time(topic, queue_id, time_ms), PULL)
    return Done(task.count)


def _get(task: MeasureTask, timed: Timer, use: Callable[[GetResult], object], *, columns: bool = False) -> Done:
    messages = 0
    with _opened(task) as store, timed():
        for queue in range(task.workload.queues):
            pull = store.get_columns if columns else store.get
            for answer in _pulls(pull, task.workload.topic(queue), queue % QUEUES_PER_TOPIC):
                messages += answer.message_count
                use(answer)
                if messages >= task.count:
                    return Done(messages)
    return Done(messages)


def _pulls(pull: Callable[[str, int, int, int], GetResult], topic: str, queue_id: int) -> Iterator[GetResult]:
    offset = 0
    while (answer := pull(topic, queue_id, offset, PULL)).status is GetMessageStatus.FOUND:
        yield answer
        offset = answer.next_begin_offset


class _Messages:
    """The messages that are put: `POOL` bodies and properties, gone round in."""

    def __init__(self, task: MeasureTask) -> None:
        from engine.format.message import Message

        self._topic = task.workload.topic(0)
        self._bodies = list(bodies(task.workload, POOL))
        self._properties = [dict(task.workload.message(n, b"").properties) for n in range(POOL)]
        self._make = Message

    def of(self, number: int) -> Message:
        """The `number`-th, a new object."""
        at = number % POOL
        return self._make(self._topic, self._bodies[at], 0, self._properties[at], born_timestamp=BORN_MS)

    def batches(self) -> list[bytes]:
        """What clients would send, batch by batch."""
        from engine.format import batch

        items = [batch.BatchItem.of(*both) for both in zip(self._bodies, self._properties, strict=True)]
        return [batch.encode(items[at : at + BATCH]) for at in range(0, POOL, BATCH)]


def _opened(task: MeasureTask, **settings: object) -> MessageStore:
    from engine.store import MessageStore

    return MessageStore.open(task.config.with_changes(**settings) if settings else task.config)


def _demand(result: PutResult) -> None:
    if not result.ok:
        raise result.error or StorageError(f"a put failed: {result.status.value}")


def _dispatched(store: MessageStore, task: MeasureTask, timed: Timer) -> Done:
    """With the seconds until all of it can be got and queried, too."""
    import time

    began = time.perf_counter()
    if not store.wait_dispatched(_DISPATCH_MS):
        raise StorageError("dispatch did not catch up", path=task.root)
    return Done(task.count, more={"dispatchedSeconds": timed.seconds + time.perf_counter() - began})


WORK: Mapping[str, Work] = {
    "recover-rebuilt": recover,
    "recover-queues": recover,
    "open": open_store,
    "verify-crc": verify,
    "check": check,
    "reindex": reindex,
    "put-one": put_one,
    "put-batch": put_batch,
    "put-items": put_items,
    "put-jsonl": put_list,
    "put-sync-1": put_sync,
    "put-sync-16": put_sync,
    "put-sync-64": put_sync,
    "get-raw": get_raw,
    "get-decoded": get_decoded,
    "get-columns": get_columns,
    "query": query,
    "get-by-time": get_by_time,
}
