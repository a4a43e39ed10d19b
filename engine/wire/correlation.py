"""Requests of one connection and the answers to them, matched by opaque. No I/O, no clock, no threads of its own.

Whoever sends requests asks `begin` for the opaque to write into one, with whatever gets the answer (a
future, a callback, a slot); gives every answer that comes to `settle`; calls `forget` when its own time is over, and
`close` when the connection has ended. Each request leaves the table once, by exactly one of the three.

Source: NettyRemotingAbstract#responseTable, #processResponseCommand, #scanResponseTable; RemotingCommand#requestId
(4.9.8). Apache's ids count on into the negative numbers; these begin again at 0, as some clients take no negative ones.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from engine.format.numbers import INT_MAX

Waiter = TypeVar("Waiter")


class ConnectionEnded(ConnectionError):
    """A request was begun on a connection that has ended."""


class Correlation(Generic[Waiter]):
    """See the module. For one thread.

    Args:
        last: the opaque before the first one.
    """

    __slots__ = ("_closed", "_last", "_waiting")

    def __init__(self, last: int = 0) -> None:
        self._waiting: dict[int, Waiter] = {}
        self._last = last
        self._closed = False

    def next_opaque(self) -> int:
        """One that no request has which waits: for a request that nobody answers. After INT_MAX comes 0."""
        opaque = self._last + 1 & INT_MAX
        while opaque in self._waiting:
            opaque = opaque + 1 & INT_MAX
        self._last = opaque
        return opaque

    def begin(self, waiter: Waiter) -> int:
        """The opaque of a new request.

        Raises:
            ConnectionEnded: after `close`.
        """
        if self._closed:
            raise ConnectionEnded("the connection is closed")
        opaque = self.next_opaque()
        self._waiting[opaque] = waiter
        return opaque

    def settle(self, opaque: int) -> Waiter | None:
        """An answer has come: who waits for it, None where nobody does (any more)."""
        return self._waiting.pop(opaque, None)

    def forget(self, opaque: int) -> None:
        """Nobody waits for that answer any more: a caller's own timeout, or a request that could not be sent."""
        self._waiting.pop(opaque, None)

    def close(self) -> list[Waiter]:
        """The connection has ended: who waited for answers, in the order of the requests. No request begins then."""
        self._closed = True
        left = list(self._waiting.values())
        self._waiting.clear()
        return left
