"""Names in a store directory and well-known topics (FORMAT.md "Directory"; Apache StorePathConfigHelper)."""

from __future__ import annotations

import functools
import re
import time

from engine.errors import InvalidArgument
from engine.format.numbers import INT_MAX, INT_MIN, LONG_MAX

ABORT = "abort"
CHECKPOINT = "checkpoint"
LOCK = "lock"
SOCKET = "rstore.sock"
"""Where a daemon of ours is asked; not Apache's, whose broker passes it over."""
COMMITLOG = "commitlog"
DLEDGER, DLEDGER_DATA = "dledger-", "data"
"""Directory of a member of a DLedger group, before its dLegerSelfId; the one of its entries in that."""
CONSUMEQUEUE = "consumequeue"
CONSUMEQUEUE_EXT = "consumequeue_ext"
BATCHCONSUMEQUEUE = "batchconsumequeue"
"""Of RocketMQ 5. Source: StorePathConfigHelper#getStorePathBatchConsumeQueue."""
INDEX = "index"
TIMER_LOG = "timerlog"
TIMER_WHEEL = "timerwheel"
TIMER_CHECK = "timercheck"
"""In config/."""
REQUEST_MODES = "messageRequestMode.json"
ORDER_INFO = "consumerOrderInfo.json"
"""In config/, of RocketMQ 5: which groups pop, and what groups that pop in order have not acknowledged."""
TIMER_PROGRESS = "timerProgress.json"
"""In config/: how far our own daemon has delivered timer messages; not Apache's, whose broker passes it over."""
EPOCH_FILE = "epochFileCheckpoint"
"""This, and the timer's log, wheel and check, are RocketMQ 5's."""
ROCKSDB_STORE = "rocksdbstore"
"""A database of a broker's own, of RocketMQ 5.4. Source: MessageRocksDBStorage."""
COMPACTION = "compaction"
"""Copies of compacted topics, of RocketMQ 5. Source: CompactionStore, CompactionPositionMgr."""
COMPACTION_LOG = "compactionLog"
COMPACTION_QUEUE = "compactionCq"
COMPACTION_POSITIONS = "position-checkpoint"
"""These three in compaction/."""
CONFIG = "config"
SALVAGE = "salvage"
QUARANTINE = "quarantine"
SEALS = "seals"
"""Hash trees of complete segments; not Apache's, whose broker passes it over."""
FOLDERS = (COMMITLOG, CONSUMEQUEUE, CONSUMEQUEUE_EXT, INDEX, CONFIG, SALVAGE, QUARANTINE, SEALS)
"""Directories in a store; each may be a link."""
SEAL_SUFFIX = ".seal"
REINDEX_BUILD = "reindex.tmp"
RECOVER_PROGRESS = "recover.progress"

SEGMENT_NAME_DIGITS = 20
INDEX_NAME_DIGITS = 17

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
"""Where timer messages wait for their time, in queue 0. Source: TimerMessageStore#TIMER_TOPIC."""
REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
"""Of the topic of checkpoints of pops, before the cluster's name. Source: PopAckConstants#REVIVE_TOPIC."""
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
SYSTEM_PREFIX = "rmq_sys_"

TOPIC_MAX_LENGTH = 127
"""A topic's length is a signed byte in a 4.9 record."""

FILE_NAME_MAX = 255
"""Bytes of a name in a directory (NAME_MAX of Linux), and of a retry topic. Source: HookUtils#MAX_TOPIC_LENGTH."""

_QUEUE_ID = re.compile(r"0|-?[1-9][0-9]{0,9}")
_SEGMENT = re.compile(rf"[0-9]{{{SEGMENT_NAME_DIGITS}}}")
_INDEX_FILE = re.compile(rf"[0-9]{{{INDEX_NAME_DIGITS}}}")


def segment_name(offset: int) -> str:
    """File name of the segment whose first byte is at `offset`: 20 decimal digits. Source: UtilAll#offset2FileName.

    Raises:
        InvalidArgument: an offset below 0 or above a long.
    """
    if not 0 <= offset <= LONG_MAX:
        raise InvalidArgument("no segment starts there", offset=offset)
    return f"{offset:0{SEGMENT_NAME_DIGITS}d}"


def segment_offset(name: str) -> int | None:
    """The offset that a segment's name stands for, or None when it is no segment's name."""
    if not _SEGMENT.fullmatch(name):
        return None
    offset = int(name)
    return offset if offset <= LONG_MAX else None


def seal_offset(name: str) -> int | None:
    """The physical offset of the segment that a file in the directory is the seal of; None: it is no seal's name."""
    stem = name.removesuffix(SEAL_SUFFIX)
    return None if stem == name else segment_offset(stem)


def index_name(millis: int) -> str:
    """File name of an index file made at `millis` (ms): yyyyMMddHHmmssSSS in local time.

    Source: IndexService#getAndCreateLastIndexFile, UtilAll#timeMillisToHumanString.
    """
    seconds, rest = divmod(millis, 1000)
    return time.strftime("%Y%m%d%H%M%S", time.localtime(seconds)) + f"{rest:03d}"


def index_name_of(number: int) -> str:
    """The name of an index file that stands for a number: one after another name, where the clock gives none."""
    return f"{number:0{INDEX_NAME_DIGITS}d}"


def is_index_name(name: str) -> bool:
    """Whether `name` is an index file's: 17 digits."""
    return _INDEX_FILE.fullmatch(name) is not None


@functools.lru_cache(maxsize=4096)
def is_directory_name(topic: str) -> bool:
    """Whether a topic can be the name of its queues' directory.

    A log may say anything: "../../x" or "/etc" would lead out of the store, "a/b" to where no start finds it again.
    """
    if topic in ("", ".", "..") or "/" in topic or "\0" in topic:
        return False
    return len(topic.encode("utf-8", "replace")) <= FILE_NAME_MAX


def queue_directory(base: str, topic: str, queue_id: int) -> str:
    """Where the files of a queue are, below `base`.

    Raises:
        InvalidArgument: a topic that is no directory's name; nothing outside of `base` is ever named.
    """
    if not is_directory_name(topic):
        raise InvalidArgument(f"topic is not a valid directory name: {topic!r}", path=base)
    return f"{base}/{topic}/{queue_id}"


def queue_id_of(name: str) -> int | None:
    """The queue id that a directory's name says, None when it is none, or would be written in another way.

    Source: DefaultMessageStore#loadConsumeQueue (Integer.parseInt), which then looks into the directory of that number.
    """
    if _QUEUE_ID.fullmatch(name) is None or not INT_MIN <= int(name) <= INT_MAX:
        return None
    return int(name)


def is_lmq(topic: str) -> bool:
    """Whether the topic is a light message queue. Source: MixAll#isLmq."""
    return topic.startswith(LMQ_PREFIX)


def is_system_topic(topic: str) -> bool:
    """Topics that the broker makes by itself, in topics.json or not."""
    return topic == SCHEDULE_TOPIC or topic.lower().startswith(
        (RETRY_PREFIX.lower(), DLQ_PREFIX.lower(), LMQ_PREFIX.lower(), SYSTEM_PREFIX)
    )
