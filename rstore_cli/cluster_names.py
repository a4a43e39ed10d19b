"""Names of a running cluster on a command line that is still being typed: quick, and silent where nobody answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from engine.errors import RStoreError

if TYPE_CHECKING:
    from engine.client.admin.session import AdminSession
    from engine.client.client import ClusterClient

_PATIENCE_S = 1.5
"""Who presses Tab does not wait longer."""


class ClusterNames:
    """Topics, groups and brokers. `namesrv`: as of the option."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv

    @property
    def topics(self) -> list[str]:
        """Every topic that a broker serves."""
        return self._ask(lambda admin: admin.topics())

    @property
    def groups(self) -> list[str]:
        """Every consumer group that a broker knows."""
        return self._ask(lambda admin: admin.groups())

    @property
    def brokers(self) -> list[str]:
        """Names of brokers."""

        async def names(admin: AdminSession) -> tuple[str, ...]:
            return tuple(dict.fromkeys(one.name for one in (await admin.clusters()).brokers))

        return self._ask(names)

    @property
    def clusters(self) -> list[str]:
        """Names of clusters."""

        async def names(admin: AdminSession) -> tuple[str, ...]:
            return (await admin.clusters()).names

        return self._ask(names)

    def _ask(self, question: Callable[[AdminSession], Coroutine[None, None, tuple[str, ...]]]) -> list[str]:
        from rstore_cli.admin.asking import connected
        from rstore_cli.cluster import client_config

        async def work(_: ClusterClient, admin: AdminSession) -> tuple[str, ...]:
            return await question(admin)

        async def in_time() -> tuple[str, ...]:
            async with asyncio.timeout(_PATIENCE_S):
                return await connected(client_config(self._namesrv, "", None), work)

        with contextlib.suppress(RStoreError, OSError, TimeoutError):
            return list(asyncio.run(in_time()))
        return []
