"""The broker as a whole: what it tells of itself, its settings, its rounds of cleaning (AdminBrokerProcessor)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.requests import fields
from engine.broker.settings.protected import refusal
from engine.broker_conf.properties import read_strictly
from engine.errors import InvalidArgument, RStoreError
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from engine.broker.net.connection import Connection
    from engine.broker.requests.later import Later
    from engine.broker.settings.live_config import LiveConfig
    from engine.broker.watch.runtime import RuntimeInfo
    from engine.broker.watch.stats import Stats, Window
    from engine.store import MessageStore
    from engine.wire.command import RemotingCommand

LARGEST_CHANGE = 16 << 10
"""Bytes of settings in one request, at most: all that a broker has take 12 KiB, and 16 are read in 20 ms."""


class BrokerAdmin:
    """See the module."""

    def __init__(
        self,
        *,
        store: MessageStore,
        stats: Stats,
        config: LiveConfig,
        later: Later,
        runtime_info: RuntimeInfo,
    ) -> None:
        self._store = store
        self._stats = stats
        self._config = config
        self._later = later
        self._runtime_info = runtime_info

    def runtime(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_RUNTIME_INFO."""
        del connection
        return request.answer(body=orjson.dumps({"table": self._runtime_info.all()}))

    def stats(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """VIEW_BROKER_STATS_DATA."""
        del connection
        name, key = fields.text(request.fields, "statsName"), fields.text(request.fields, "statsKey")
        view = self._stats.view(name, key)
        if view is None:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        body = {
            "statsDay": _window_json(view.day),
            "statsHour": _window_json(view.hour),
            "statsMinute": _window_json(view.minute),
        }
        return request.answer(body=orjson.dumps(body))

    # --- settings ---------------------------------------------------------------------------------------------------

    def config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CONFIG."""
        del connection
        config = self._config
        return request.answer(ext={"version": config.version_json}, body=config.text().encode())

    def update_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """UPDATE_BROKER_CONFIG."""
        try:
            changes = properties_of(request)
        except InvalidArgument as error:
            return request.answer(ResponseCode.SYSTEM_ERROR, error.message)
        if self._config.is_forbidden(changes):
            return request.answer(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        why = refusal(changes)
        if why is not None:
            return request.answer(ResponseCode.NO_PERMISSION, why)
        self._later.answer(connection, request, self._update(request, changes))
        return None

    async def _update(self, request: RemotingCommand, changes: dict[str, str]) -> RemotingCommand:
        try:
            await self._config.update(changes)
        except RStoreError as error:
            return request.answer(ResponseCode.SYSTEM_ERROR, error.message)
        return request.answer()

    # --- cleaning ---------------------------------------------------------------------------------------------------

    def clean_queues(self, connection: Connection, request: RemotingCommand) -> None:
        """CLEAN_EXPIRED_CONSUMEQUEUE: queues whose messages are all gone from the log."""

        async def clean() -> RemotingCommand:
            await self._later.in_thread(self._store.removal.expired)
            return request.answer()

        self._later.answer(connection, request, clean())

    def delete_expired(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """DELETE_EXPIRED_COMMITLOG: the next rounds delete whatever the hour; answered before they have."""
        del connection
        self._store.execute_delete_files_manually()
        return request.answer()


def properties_of(request: RemotingCommand) -> dict[str, str]:
    """The lines `key=value` of a body. Source: MixAll#string2Properties.

    Raises:
        InvalidArgument: they can't be read, or there are more of them than would be read in a turn of the loop.
    """
    size = len(request.body)
    if size > LARGEST_CHANGE:
        raise InvalidArgument(f"settings of {size:,} bytes: a request may have {LARGEST_CHANGE:,}")
    try:
        return read_strictly(bytes(request.body).decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidArgument("string2Properties error: not UTF-8 text") from None
    except InvalidArgument as error:
        raise InvalidArgument(f"string2Properties error: {error.message}") from None


def _window_json(window: Window) -> dict[str, Any]:
    """BrokerStatsItem."""
    return {"avgpt": window.average, "sum": window.total, "tps": window.tps}
