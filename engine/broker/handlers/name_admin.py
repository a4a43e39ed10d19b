"""The name service's settings, read and changed (BROKER.md 1.3; DefaultRequestProcessor#getConfig, #updateConfig)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.broker.handlers.admin_broker import properties_of
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from engine.broker.net.connection import Connection
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.wire.command import RemotingCommand

_ORDER = "orderMessageEnable"
_ALWAYS = {"clusterTest": "false", "productEnvName": "center"}
"""What Apache's name service has, too, and nothing depends on here."""
_BLACK_LIST = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})


class NameAdmin:
    """See the module."""

    def __init__(self, settings: CurrentSettings) -> None:
        self._settings = settings

    def config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_NAMESRV_CONFIG."""
        del connection
        settings = {**_ALWAYS, _ORDER: str(self._settings.now.order_message_enable).lower()}
        lines = "".join(f"{key}={value}\n" for key, value in sorted(settings.items()))
        return request.answer(body=lines.encode())

    def update_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_NAMESRV_CONFIG: orderMessageEnable, for as long as the daemon runs; no other key changes anything."""
        del connection
        changes = properties_of(request)
        if changes is None:
            return request.answer(ResponseCode.SYSTEM_ERROR, "string2Properties error")
        if not _BLACK_LIST.isdisjoint(changes):
            return request.answer(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        if _ORDER in changes:
            order = changes[_ORDER].strip().lower() == "true"
            self._settings.change(replace(self._settings.now, order_message_enable=order))
        return request.answer()
