"""The names of tiered files of RocketMQ 5 (FORMAT.md "Tiered files"). What is in them has the forms of a store's own.

Source: PosixFileSegment, MessageStoreUtil#offset2FileName, FileSegmentType (tieredstore, 5.3.3).
"""

from __future__ import annotations

import hashlib
import re

from engine.format.names import SEGMENT_NAME_DIGITS
from engine.format.numbers import LONG_MAX

COMMIT_LOG = "COMMIT_LOG"
CONSUME_QUEUE = "CONSUME_QUEUE"
INDEX_TOPIC = "rmq_sys_INDEX"
"""What lies below this name is no topic. Source: MessageStoreUtil#RMQ_SYS_TIERED_STORE_INDEX_TOPIC."""

_HASH_DIGITS = 8
_FILE = re.compile(r"([0-9a-f]{8})?([0-9]{20})")


def file_name(offset: int) -> str:
    """The name of the file that begins at an offset: eight digits of the MD5 of its decimal digits, and itself.

    The hash spreads the files of a bucket.
    """
    digest = hashlib.md5(str(offset).encode(), usedforsecurity=False).hexdigest()
    return f"{digest[:_HASH_DIGITS]}{offset:0{SEGMENT_NAME_DIGITS}}"


def file_offset(name: str) -> int | None:
    """The offset at which a file begins; None: it is no name of a tiered file."""
    match = _FILE.fullmatch(name)
    if match is None or int(match[2]) > LONG_MAX:
        return None
    offset = int(match[2])
    return offset if match[1] is None or name == file_name(offset) else None
