"""What answers a request: the shape that the switchboard, its guards and every handler share."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.net.connection import Connection
    from engine.wire.command import RemotingCommand

Handler: TypeAlias = "Callable[[Connection, RemotingCommand], RemotingCommand | None]"
"""The answer to a connection's request; None: there is none, or it comes later. Called in the loop's thread.

Raises Answer: the same as giving one, from wherever it is known."""
