"""How much several readers hold together that nobody has taken yet. No I/O."""

from __future__ import annotations

import asyncio

HELD_MOST = 32 << 20
"""Bytes from which on readers wait. What one pull gives comes on top of it, for each reader."""


class HeldBytes:
    """A reader waits for space before a pull, counts what came, and takes off what was given on. For one loop."""

    def __init__(self, most: int = HELD_MOST) -> None:
        self._most = most
        self._held = 0
        self._space = asyncio.Event()
        self._space.set()

    async def space(self) -> None:
        """Until less than the most is held."""
        await self._space.wait()

    def add(self, size: int) -> None:
        """So many bytes came, or, below 0, are given on."""
        self._held += size
        if self._held < self._most:
            self._space.set()
        else:
            self._space.clear()
