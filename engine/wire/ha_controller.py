"""The replication protocol under a controller of RocketMQ 5, sans-I/O (REMOTING.md 3.1).

    slave → master    16 bytes    state 1, last file? i2, learner? i2, broker ID i8: the greeting
    master → slave    20 bytes    state 1, size i4, the log's end i8, last epoch i4; then `size` bytes: epochs, 12 each
    slave → master    12 bytes    state 2, physical offset up to which the slave has the log; the first: where to begin
    master → slave    36 bytes    state 2, size i4, physical offset i8, epoch i4, its start i8, confirm offset i8; then
                                  `size` bytes of the log, none in a heartbeat

Who greets as a learner is never counted among those that a put waits for (AutoSwitchHAService#getSyncStateSet), and a
broker ID that no broker has keeps none of them in that set.

Source: AutoSwitchHAClient, AutoSwitchHAConnection, HAConnectionState (5.3.3).
"""

from __future__ import annotations

import struct
from typing import ClassVar

from engine.dataclass import dataclass
from engine.format.epoch_file import EpochEntry
from engine.wire.ha import MAX_BODY, BadTransfer, TransferReader

GREETING = struct.Struct(">ihhq")
GREETED = struct.Struct(">iiqi")
EPOCH = struct.Struct(">iq")
REPORT = struct.Struct(">iq")
HEADER = struct.Struct(">iiqiqq")
HANDSHAKE, TRANSFER = 1, 2
"""Of HAConnectionState."""
NO_BROKER = -1
MOST_EPOCHS = 1000
"""An Apache master sends no more. Source: AutoSwitchHAConnection#handShakeBuffer."""
_NOWHERE = -1
"""The offset of a heartbeat while a master has no log yet."""


@dataclass(frozen=True, slots=True)
class MasterEpochs:
    """What a master says of itself: where its log ends (physical), and its epochs, oldest first."""

    end: int
    epochs: tuple[EpochEntry, ...]


def encode_greeting(*, last_file: bool) -> bytes:
    """The first words of a learner. `last_file`: an empty log begins with the master's last file, else its first."""
    return GREETING.pack(HANDSHAKE, last_file, 1, NO_BROKER)


def encode_report(offset: int) -> bytes:
    """A slave's report."""
    return REPORT.pack(TRANSFER, offset)


def epochs_size(head: bytes) -> int:
    """Bytes of epochs that follow the head of a master's greeting. Raises BadTransfer: it is none."""
    state, size, end, _ = GREETED.unpack(head)
    if state != HANDSHAKE or size % EPOCH.size or not 0 <= size <= MOST_EPOCHS * EPOCH.size or end < 0:
        raise BadTransfer(f"invalid greeting of a master: state {state}, {size} bytes of epochs, log end {end}")
    return int(size)


def decode_greeting(head: bytes, body: bytes) -> MasterEpochs:
    """A master's greeting, whole. Raises BadTransfer: epochs or their offsets do not grow, or lie after the end."""
    end = GREETED.unpack(head)[2]
    entries = tuple(EpochEntry(*EPOCH.unpack_from(body, at)) for at in range(0, len(body), EPOCH.size))
    least, start = 0, 0
    for entry in entries:
        if entry.epoch < least or not start <= entry.start_offset <= end:
            raise BadTransfer(
                f"invalid epoch {entry.epoch} at offset {entry.start_offset} in a master's greeting: log end {end}"
            )
        least, start = entry.epoch + 1, entry.start_offset
    return MasterEpochs(end, entries)


class ControllerReader(TransferReader):
    """What comes after the greeting, as `TransferReader`; a heartbeat of a master without a log is passed over."""

    __slots__ = ()

    header_size: ClassVar[int] = HEADER.size

    def __init__(self, max_body: int = MAX_BODY) -> None:
        super().__init__(max_body)

    def read_header(self, head: bytes) -> tuple[int, int] | None:
        """As `TransferReader`. Raises BadTransfer: the connection is in another state."""
        state, size, offset, _, _, _ = HEADER.unpack(head)
        if state != TRANSFER:
            raise BadTransfer(f"invalid transfer: the connection's state is {state}, not {TRANSFER}")
        return None if offset == _NOWHERE and not size else (offset, size)
