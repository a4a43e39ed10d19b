"""`rstore replicate`: a copy of a running broker's store, made and kept up as a slave does, without a broker around it.

The log comes through the replication service, from its first byte on, each record checked as it is dispatched; topics,
groups and offsets come by the broker's admin requests. What is there already is compared at its end first. Run again it
continues where it was.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.broker.ha.follower import OVERLAP, ahead
from engine.broker.ha.settings import HaSettings
from engine.broker.ha.slave import Copied, LinkStatus, SlaveClient
from engine.broker.tables.config_file import ConfigFile
from engine.client import master_tables
from engine.client.connection import RemotingClient
from engine.client.ha_protocol import HaProtocol, ha_protocol
from engine.config import BrokerRole
from engine.dataclass import dataclass
from engine.errors import CannotRepair, RStoreError, StorageError
from engine.files.disk import Disk
from engine.inspect.store.change_gate import ChangeKind
from engine.store import MessageStore
from engine.wire.address import PORT_MAX, parse_address

if TYPE_CHECKING:
    import ssl

    from engine.client.signed_peer import RequestSigner
    from engine.config import StoreConfig

_ASK_S = 1.0
_METADATA_S = 10.0
_PATIENCE_S = 30.0
_SIZES = {
    "mappedFileSizeCommitLog": "mapped_file_size_commit_log",
    "mappedFileSizeConsumeQueue": "mapped_file_size_consume_queue",
    "maxHashSlotNum": "max_hash_slot_num",
    "maxIndexNum": "max_index_num",
}


@dataclass(frozen=True, slots=True)
class ReplicateOptions:
    """What is asked for.

    Attributes:
        broker: `host:port` of the broker.
        ha_port: of its replication service; None: as its settings say, or the broker's and one more.
        until_caught_up: end when the copy has all that the broker had a moment ago.
        bytes_per_s: not faster; None: as fast as it goes.
        overlap: bytes at the copy's end that are compared; None: all of it.
        last_file: an empty copy begins with the broker's last file.
        tables: whether topics, groups and offsets are copied, too.
        tls: of both connections; None: plain text.
        signer: of requests for which the broker demands an account; None: we have none.
    """

    broker: str
    ha_port: int | None = None
    until_caught_up: bool = False
    bytes_per_s: float | None = None
    overlap: int | None = OVERLAP
    last_file: bool = False
    tables: bool = True
    tls: ssl.SSLContext | None = None
    signer: RequestSigner | None = None


@dataclass(frozen=True, slots=True)
class Replicated:
    """How it stands. Physical offsets, bytes.

    Attributes:
        start, end: of the copy's log. `master_end`: the broker's, as it said last.
        appended, compared: by this run.
        dispatched: up to where records were checked, and are in queues and index.
        status: see LinkStatus.
        tables: files of config/ that were copied.
        seconds: since the beginning.
    """

    start: int
    end: int
    master_end: int
    appended: int
    compared: int
    dispatched: int
    status: LinkStatus
    tables: tuple[str, ...]
    seconds: float

    @property
    def lag(self) -> int:
        """Bytes that the broker has more, as far as is known."""
        return max(0, self.master_end - self.end)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "start": self.start,
            "end": self.end,
            "masterEnd": self.master_end,
            "lag": self.lag,
            "appended": self.appended,
            "compared": self.compared,
            "verified": self.dispatched,
            "status": self.status.value,
            "tables": list(self.tables),
            "seconds": round(self.seconds, 3),
        }


Tell = Callable[[Replicated], None]


def replicate(
    config: StoreConfig, wanted: ReplicateOptions, tell: Tell, log: logging.Logger | None = None
) -> Replicated:
    """Copy until caught up, or for ever; `tell` is called about every second.

    Args:
        config: of the copy; sizes that nobody gave are the broker's, in a new store.
        wanted: see Wanted.
        tell: how it stands.
        log: gets what happens.

    Raises:
        Diverged: copy and broker are not two copies of one log. FormatError: the broker sent what is no log; what came
        before it is kept. CannotRepair: other file sizes. StoreLocked, Refused: the copy can't be opened. StorageError:
        the broker can't be reached for long, or the copy can't be written. InvalidArgument.
    """
    return asyncio.run(_Replication(config, wanted, tell, log or logging.getLogger("rstore.replicate")).run())


class _Replication:
    def __init__(self, config: StoreConfig, wanted: ReplicateOptions, tell: Tell, log: logging.Logger) -> None:
        self._config = config
        self._wanted = wanted
        self._tell = tell
        self._log = log
        self._began = time.monotonic()
        self._tables: tuple[str, ...] = ()
        self._master: RemotingClient | None = None
        self._peer = master_tables.AskedMaster(wanted.broker, wanted.signer, log)

    async def run(self) -> Replicated:
        host, broker_port = parse_address(self._wanted.broker)
        try:
            figures = await master_tables.runtime(await self._asked())
            settings = await self._settings()
            config = self._sized(settings)
            port = self._wanted.ha_port or master_tables.number(settings, "haListenPort", PORT_MAX) or broker_port + 1
            store = MessageStore.open(config, kind=ChangeKind.SERVE)
            try:
                protocol = ha_protocol(settings, last_file=self._wanted.last_file)
                return await self._copy(store, f"{host}:{port}", figures, protocol)
            finally:
                await asyncio.get_running_loop().run_in_executor(None, store.close)
        finally:
            if self._master is not None:
                await self._master.close()

    # --- the broker -------------------------------------------------------------------------------------------------

    async def _asked(self) -> master_tables.AskedMaster:
        if self._master is None or not self._master.is_open:
            self._master = await RemotingClient.connect(self._wanted.broker, tls=self._wanted.tls)
        return self._peer.by(self._master)

    async def _settings(self) -> dict[str, str]:
        try:
            return await master_tables.settings(await self._asked())
        except RStoreError as error:
            self._log.warning("the broker did not send its settings", extra={"why": str(error)})
            return {}

    def _sized(self, settings: dict[str, str]) -> StoreConfig:
        """The copy's settings. Raises CannotRepair: its log has files of another size. FormatError."""
        config = self._config
        disk = Disk()
        fresh = not any(disk.exists(path) and disk.listdir(path) for path in config.log_directories)
        changes: dict[str, Any] = {}
        for name, field in _SIZES.items():
            size = master_tables.number(settings, name)
            if field not in config.given and size is not None and fresh:
                changes[field] = size
        config = config.with_changes(**changes, broker_role=BrokerRole.SLAVE)
        theirs = master_tables.number(settings, "mappedFileSizeCommitLog") or config.mapped_file_size_commit_log
        if (fresh or "mapped_file_size_commit_log" in config.given) and theirs != config.mapped_file_size_commit_log:
            raise CannotRepair(
                f"the broker's segment size is {theirs}, the copy's is {config.mapped_file_size_commit_log}",
                hint="a copy must have the same: remove mappedFileSizeCommitLog",
            )
        return config

    # --- copying ----------------------------------------------------------------------------------------------------

    async def _copy(
        self, store: MessageStore, service: str, figures: dict[str, str], protocol: HaProtocol
    ) -> Replicated:
        wanted = self._wanted
        client = SlaveClient(
            store,
            replace(HaSettings(), master_address=service, retry_ms=1000),
            self._log,
            overlap=store.log.max_offset if wanted.overlap is None else wanted.overlap,
            start=None if wanted.last_file else 0,
            bytes_per_s=wanted.bytes_per_s,
            tls=wanted.tls,
            protocol=protocol,
        )
        begin, master_end = master_tables.extent(figures)
        if store.log.max_offset > master_end:
            raise ahead(store, master_end)
        client.know(begin, master_end)
        client.start()
        heard = linked = time.monotonic()
        tables_at = heard - _METADATA_S
        try:
            while True:
                if wanted.tables and time.monotonic() - tables_at >= _METADATA_S:
                    tables_at = time.monotonic()
                    await self._copy_tables(store)
                state = client.state
                self._judge(store, state)
                if state.status is not LinkStatus.AWAY:
                    linked = time.monotonic()
                elif wanted.until_caught_up and state.error and time.monotonic() - linked > _PATIENCE_S:
                    raise state.error
                now = self._now(store, state, master_end)
                self._tell(now)
                if wanted.until_caught_up and self._is_done(store, state, master_end):
                    return self._now(store, client.state, master_end)
                await asyncio.sleep(_ASK_S if now.lag or not wanted.until_caught_up else _ASK_S / 10)
                try:
                    figures = await master_tables.runtime(await self._asked())
                    begin, master_end = master_tables.extent(figures)
                    client.know(begin, master_end)
                    heard = time.monotonic()
                except RStoreError as error:
                    if wanted.until_caught_up and time.monotonic() - heard > _PATIENCE_S:
                        raise
                    self._log.warning("the broker did not answer", extra={"why": str(error)})
        finally:
            await asyncio.get_running_loop().run_in_executor(None, client.stop)

    @staticmethod
    def _judge(store: MessageStore, state: Copied) -> None:
        """Raises what can't be waited for."""
        for error in store.errors:
            raise error
        if state.status in (LinkStatus.DIVERGED, LinkStatus.FAULTY) and state.error is not None:
            raise state.error
        if state.at_home and state.error is not None:
            raise state.error

    @staticmethod
    def _is_done(store: MessageStore, state: Copied, master_end: int) -> bool:
        caught_up = state.status is LinkStatus.FOLLOWING and state.end >= master_end
        return caught_up and store.dispatch.position >= master_end

    def _now(self, store: MessageStore, state: Copied, master_end: int) -> Replicated:
        return Replicated(
            max(store.log.min_offset, 0),
            state.end,
            master_end,
            state.appended,
            state.compared,
            store.dispatch.position,
            state.status,
            self._tables,
            time.monotonic() - self._began,
        )

    async def _copy_tables(self, store: MessageStore) -> None:
        root = os.fspath(store.config.store_path_root_dir)
        copied = set(self._tables)
        for name in master_tables.TABLES:
            try:
                table = await master_tables.fetch(await self._asked(), name)
            except StorageError as error:
                self._log.warning("configuration table not copied", extra={"table": name, "why": str(error)})
                continue
            file = ConfigFile(store.disk, root, name)
            if file.load() != table:
                file.save(table)
            copied.add(name)
        self._tables = tuple(name for name in master_tables.TABLES if name in copied)
