"""Names in a store directory and well-known topics (store-format.md, Directory; Apache StorePathConfigHelper)."""

from __future__ import annotations

import re
import time

from engine.format.numbers import LONG_MAX

ABORT = "abort"
CHECKPOINT = "checkpoint"
LOCK = "lock"
COMMITLOG = "commitlog"
CONSUMEQUEUE = "consumequeue"
CONSUMEQUEUE_EXT = "consumequeue_ext"
INDEX = "index"
CONFIG = "config"
SALVAGE = "salvage"
QUARANTINE = "quarantine"

SEGMENT_NAME_DIGITS = 20

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
SYSTEM_PREFIX = "rmq_sys_"

TOPIC_MAX_LENGTH = 127
"""A topic's length is a signed byte in a 4.9 record."""

_SEGMENT = re.compile(r"[0-9]{20}")
_INDEX_FILE = re.compile(r"[0-9]{17}")


def segment_name(offset: int) -> str:
    """File name of the segment whose first byte is at `offset`: 20 decimal digits. Source: UtilAll#offset2FileName."""
    return f"{offset:020d}"


def segment_offset(name: str) -> int | None:
    """The offset that a segment's name stands for, or None when it is no segment's name."""
    return int(name) if _SEGMENT.fullmatch(name) and int(name) <= LONG_MAX else None


def index_name(millis: int) -> str:
    """File name of an index file made at `millis` (ms): yyyyMMddHHmmssSSS in local time.

    Source: IndexService#getAndCreateLastIndexFile, UtilAll#timeMillisToHumanString.
    """
    seconds, rest = divmod(millis, 1000)
    return time.strftime("%Y%m%d%H%M%S", time.localtime(seconds)) + f"{rest:03d}"


def is_index_name(name: str) -> bool:
    """Whether `name` is an index file's: 17 digits."""
    return _INDEX_FILE.fullmatch(name) is not None


def is_lmq(topic: str) -> bool:
    """Whether the topic is a light message queue. Source: MixAll#isLmq."""
    return topic.startswith(LMQ_PREFIX)


def is_system_topic(topic: str) -> bool:
    """Topics that the broker makes by itself, in topics.json or not."""
    return topic == SCHEDULE_TOPIC or topic.lower().startswith(
        (RETRY_PREFIX.lower(), DLQ_PREFIX.lower(), LMQ_PREFIX.lower(), SYSTEM_PREFIX)
    )
