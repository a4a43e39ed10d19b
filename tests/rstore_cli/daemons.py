"""Daemons in a thread of this process, for commands that talk to several: each starts in a moment."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.broker.deleted import topics_with_queues
from engine.broker.net.ports import Listening
from engine.broker.serve import Daemon
from engine.broker.settings.broker_settings import BrokerSettings
from engine.config import BrokerRole, StoreConfig
from engine.files.disk import Disk
from engine.store import MessageStore
from tests.engine.broker.client import SMALL
from tests.rstore_cli.conftest import Cli
from tests.support.patience import PATIENT

WAIT_S = 120


class DaemonThread:
    """See the module."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="daemons")
        self._running: dict[str, AsyncExitStack] = {}
        self._thread.start()

    def store(self, name: str) -> Path:
        """The directory of a daemon's store."""
        return self._base / name / "store"

    def start(
        self, name: str, conf: Mapping[str, str] | None = None, *, names: str | None = None, **store: Any
    ) -> Listening:
        """A daemon on free ports, with keys of broker.conf.

        Args:
            name: of its store's directory, and of the broker where `conf` has no other.
            names: name servers that it registers with; None: it has one of its own.
            store: changes of StoreConfig.
        """
        fields = {**{key: str(value) for key, value in PATIENT.items()}, "brokerName": name, **(conf or {})}
        role = BrokerRole[fields.pop("brokerRole", "ASYNC_MASTER")]
        if names is not None:
            fields["namesrvAddr"] = names
        config = StoreConfig(store_path_root_dir=self.store(name), broker_role=role)
        config = config.with_changes(**{**SMALL, **store})
        settings = replace(BrokerSettings.of(fields), listen_port=0, name_service_port=0 if names is None else None)
        return self._do(self._start(name, config, settings))

    def names_of(self, name: str, conf: Mapping[str, str] | None = None, **store: Any) -> str:
        """The name server of a daemon that is started, as `start`."""
        names = self.start(name, conf, **store).names
        assert names is not None
        return names

    def stop(self, name: str) -> None:
        """It leaves its name servers, and its store is closed."""
        self._do(self._running.pop(name).aclose())

    def close(self) -> None:
        """All of them, the last first, and the thread."""
        try:
            for name in reversed(list(self._running)):
                self.stop(name)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _start(self, name: str, config: StoreConfig, settings: BrokerSettings) -> Listening:
        before = topics_with_queues(Disk(), config)
        store = MessageStore.open(config, cleaning=True)
        stack = AsyncExitStack()
        stack.push_async_callback(self._loop.run_in_executor, None, store.close)  # type: ignore[arg-type]
        try:
            daemon = Daemon(settings, store, self._loop, logging.getLogger("test"), None, before)
            await stack.enter_async_context(daemon)
        except BaseException:
            await stack.aclose()
            raise
        self._running[name] = stack
        return daemon.listening

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)


@contextmanager
def daemons(base: Path) -> Iterator[DaemonThread]:
    """Daemons below a directory; those that still run at the end are stopped."""
    made = DaemonThread(base)
    try:
        yield made
    finally:
        made.close()


def until_served(cli: Cli, topic: str, *name_servers: str) -> None:
    """Wait until each name server has a route of a topic: brokers register a topic a moment after it is made."""
    for names in name_servers:
        deadline = time.monotonic() + WAIT_S
        while cli("admin", "topic", "route", topic, "--namesrv", names).code:
            assert time.monotonic() < deadline, f"{names} has no route of {topic}"
            time.sleep(0.05)
