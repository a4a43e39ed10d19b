"""Bits of a record's sysFlag (FORMAT.md "Record"; Apache MessageSysFlag)."""

from __future__ import annotations

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
TRANSACTION_NONE = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
HOSTS_V6_MASK = BORN_HOST_V6 | STORE_HOST_V6
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_TYPE_MASK = 0x700
COMPRESSION_LZ4 = 0x100
COMPRESSION_ZSTD = 0x200
COMPRESSION_ZLIB = 0x300


def transaction_type(sys_flag: int) -> int:
    """One of the TRANSACTION_* values."""
    return sys_flag & TRANSACTION_MASK


def is_consumable(sys_flag: int) -> bool:
    """Whether such a record gets a queue unit: plain and committed ones do, prepared and rolled back ones don't.

    Source: DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue#dispatch.
    """
    return sys_flag & TRANSACTION_MASK in (TRANSACTION_NONE, TRANSACTION_COMMIT)


def is_indexed(sys_flag: int) -> bool:
    """Whether such a record gets index entries: all but rollbacks. Source: IndexService#buildIndex."""
    return sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK
