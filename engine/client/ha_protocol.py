"""How a slave talks to a master's replication service: plainly, or as under a controller of RocketMQ 5.

The service does not say which it speaks; the broker's settings do (enableControllerMode).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from engine.errors import PeerLost
from engine.wire import ha, ha_controller

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.client.stream import Stream


class HaProtocol(Protocol):
    """What differs."""

    def greet(self, stream: Stream, limit_s: float) -> ha_controller.MasterEpochs | None:
        """What comes before the first report; None: nothing. Raises BadTransfer, PeerLost, OSError."""

    def report(self, offset: int) -> bytes:
        """A slave's report."""

    def reader(self) -> ha.TransferReader:
        """Of what the master sends."""


class PlainHa:
    """Of 4.9, and of 5.x without a controller: who connects reports."""

    def greet(self, stream: Stream, limit_s: float) -> None:
        """Nothing."""

    def report(self, offset: int) -> bytes:
        """As `HaProtocol`."""
        return ha.encode_ack(offset)

    def reader(self) -> ha.TransferReader:
        """As `HaProtocol`."""
        return ha.TransferReader()


class ControllerHa:
    """Of a master under a controller: both say first who they are. We are a learner, for whom no put waits.

    Args:
        last_file: an empty log begins with the master's last file.
    """

    def __init__(self, *, last_file: bool = False) -> None:
        self._last_file = last_file

    def greet(self, stream: Stream, limit_s: float) -> ha_controller.MasterEpochs:
        """As `HaProtocol`."""
        until = time.monotonic() + limit_s
        stream.send([ha_controller.encode_greeting(last_file=self._last_file)])
        head = _receive(stream, ha_controller.GREETED.size, until)
        return ha_controller.decode_greeting(head, _receive(stream, ha_controller.epochs_size(head), until))

    def report(self, offset: int) -> bytes:
        """As `HaProtocol`."""
        return ha_controller.encode_report(offset)

    def reader(self) -> ha.TransferReader:
        """As `HaProtocol`."""
        return ha_controller.ControllerReader()


def ha_protocol(settings: Mapping[str, str], *, last_file: bool = False) -> HaProtocol:
    """By a broker's settings (GET_BROKER_CONFIG); those of a broker that sent none are empty: plain."""
    if settings.get("enableControllerMode", "").strip().lower() == "true":
        return ControllerHa(last_file=last_file)
    return PlainHa()


def _receive(stream: Stream, size: int, until: float) -> bytes:
    """So many bytes, whole. Raises PeerLost, OSError, TimeoutError."""
    out = b""
    while len(out) < size:
        piece = stream.receive(size - len(out), until - time.monotonic())
        if not piece:
            raise PeerLost("the master closed the connection instead of greeting")
        out += piece
    return out
