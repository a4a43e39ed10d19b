"""The checkpoint file: 4096 bytes, three i64 (ms) at its head (FORMAT.md "Checkpoint"; Apache StoreCheckpoint).

5.x adds masterFlushedOffset at 24 and confirmPhyOffset at 32 (`ReplicaOffsets`), 5.5 logicsPhysicalOffset at 40: they
are kept as they are. 4.9 never writes there: what it leaves is zeros.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from engine.dataclass import dataclass
from engine.errors import FormatError

if TYPE_CHECKING:
    from engine.format.buffers import Buffer

FILE_SIZE = 4096
_FIELDS = struct.Struct(">qqq")
FIELDS_SIZE = 24
assert _FIELDS.size == FIELDS_SIZE
SAFETY_MS = 3000
_REPLICA_FIELDS = struct.Struct(">qq")
REPLICA_SIZE = FIELDS_SIZE + _REPLICA_FIELDS.size
"""Bytes up to the end of the fields that 5.x adds."""

_QUEUES_OFFSET = struct.Struct(">q")
NEWER_SIZE = REPLICA_SIZE + _QUEUES_OFFSET.size
"""Bytes up to the end of the field that 5.5 adds."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Store times (ms) of the newest message flushed in each structure; 0 = none yet."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0

    @property
    def min_timestamp(self) -> int:
        """Everything stored up to this time (ms) is on disk in log and queues: 3 s are taken off for safety.

        Source: StoreCheckpoint#getMinTimestamp.
        """
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - SAFETY_MS)

    @property
    def min_timestamp_index(self) -> int:
        """The same with the index. Source: StoreCheckpoint#getMinTimestampIndex."""
        return min(self.min_timestamp, self.index_msg_timestamp)

    def encode(self) -> bytes:
        """The first 24 bytes of the file."""
        return _FIELDS.pack(self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp)


@dataclass(frozen=True, slots=True)
class ReplicaOffsets:
    """What RocketMQ 5 keeps after the three times, physical offsets (StoreCheckpoint, 5.x).

    Attributes:
        master_flushed_offset: up to where the master's log was on disk, as a slave that may act for it was told.
        confirm_phy_offset: up to where all replicas in sync have the log, under a controller.
    """

    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0

    def encode(self) -> bytes:
        """The 16 bytes after those of `Checkpoint`."""
        return _REPLICA_FIELDS.pack(self.master_flushed_offset, self.confirm_phy_offset)


def decode_replica_offsets(buffer: Buffer) -> ReplicaOffsets | None:
    """The fields that 5.x adds, from the file's first bytes; None: the file ends before them."""
    if len(buffer) < REPLICA_SIZE:
        return None
    return ReplicaOffsets(*_REPLICA_FIELDS.unpack_from(buffer, FIELDS_SIZE))


def decode_queues_offset(buffer: Buffer) -> int:
    """logicsPhysicalOffset: where the newest record begins whose unit is flushed (physical); 0: there is none."""
    return int(_QUEUES_OFFSET.unpack_from(buffer, REPLICA_SIZE)[0]) if len(buffer) >= NEWER_SIZE else 0


def decode(buffer: Buffer) -> Checkpoint:
    """The checkpoint in the file's first bytes.

    Raises:
        FormatError: fewer than 24 bytes are there.
    """
    if len(buffer) < FIELDS_SIZE:
        raise FormatError(f"a checkpoint needs {FIELDS_SIZE} bytes, there are {len(buffer)}")
    return Checkpoint(*_FIELDS.unpack_from(buffer, 0))
