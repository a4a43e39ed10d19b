"""The broker as a whole: what it tells of itself, its settings, its rounds of cleaning (AdminBrokerProcessor)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.requests import fields
from engine.errors import RStoreError
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from engine.broker.net.connection import Connection
    from engine.broker.requests.later import Later
    from engine.broker.settings.live_config import LiveConfig
    from engine.broker.watch.runtime import RuntimeInfo
    from engine.broker.watch.stats import Stats, Window
    from engine.store import MessageStore
    from engine.wire.command import RemotingCommand


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

    def update_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_BROKER_CONFIG."""
        del connection
        changes = properties_of(request)
        if changes is None:
            return request.answer(ResponseCode.SYSTEM_ERROR, "string2Properties error")
        if self._config.is_forbidden(changes):
            return request.answer(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        try:
            self._config.update(changes)
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


def properties_of(request: RemotingCommand) -> dict[str, str] | None:
    """The lines `key=value` of a body, None when it has none. Source: MixAll#string2Properties."""
    import javaproperties

    try:
        return dict(javaproperties.loads(bytes(request.body).decode("utf-8")))
    except ValueError:
        return None


def _window_json(window: Window) -> dict[str, Any]:
    """BrokerStatsItem."""
    return {"avgpt": window.average, "sum": window.total, "tps": window.tps}
