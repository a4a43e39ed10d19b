"""The name service's settings, read and changed (BROKER.md 1.3; DefaultRequestProcessor#getConfig, #updateConfig)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.broker.handlers.admin_broker import properties_of
from engine.broker.settings.name_config import BLACK_LIST, NameConfig
from engine.broker.settings.protected import refusal
from engine.errors import InvalidArgument
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from engine.broker.net.connection import Connection
    from engine.wire.command import RemotingCommand


class NameAdmin:
    """See the module."""

    def __init__(self, config: NameConfig) -> None:
        self._config = config

    def config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_NAMESRV_CONFIG."""
        del connection
        return request.answer(body=self._config.lines().encode())

    def update_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_NAMESRV_CONFIG, for as long as the daemon runs."""
        del connection
        try:
            changes = properties_of(request)
        except InvalidArgument as error:
            return request.answer(ResponseCode.SYSTEM_ERROR, error.message)
        if not BLACK_LIST.isdisjoint(changes):
            return request.answer(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        why = refusal(changes)
        if why is not None:
            return request.answer(ResponseCode.NO_PERMISSION, why)
        try:
            self._config.update(changes)
        except InvalidArgument as error:
            return request.answer(ResponseCode.SYSTEM_ERROR, error.message)
        return request.answer()
