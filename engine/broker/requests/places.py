"""Requests that are answered to some addresses only, whoever asks: where there are no accounts, what else could tell.

The answer to others names the setting that lets an address in; the log says it once for an address and a code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.broker.requests.answers import Answer
from engine.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    import logging
    from collections.abc import Collection, Mapping

    from engine.broker.net.allow import AllowList
    from engine.broker.net.connection import Connection
    from engine.broker.requests.handler import Handler
    from engine.wire.command import RemotingCommand

_REMEMBERED = 1000


class Places:
    """Args: allow: the addresses. key: the setting that names them. log: gets who was refused."""

    def __init__(self, allow: AllowList, key: str, log: logging.Logger) -> None:
        self._allow = allow
        self._key = key
        self._log = log
        self._logged: set[tuple[bytes, int]] = set()

    def only(self, codes: Collection[int], handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """The same handlers; those of the codes answer these addresses alone."""
        return {code: self._behind(handler) if code in codes else handler for code, handler in handlers.items()}

    def _behind(self, handler: Handler) -> Handler:
        def checked(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
            if not self._allow.allows(connection.host.ip):
                why = self._refusal(connection, request.code)
                raise Answer(ResponseCode.NO_PERMISSION, why)
            return handler(connection, request)

        return checked

    def _refusal(self, connection: Connection, code: int) -> str:
        why = f"{RequestCode(code).name} is not answered to {connection.address}: {self._key} names the addresses"
        logged = (connection.host.ip, code)
        if logged not in self._logged:
            if len(self._logged) >= _REMEMBERED:
                self._logged.clear()
            self._logged.add(logged)
            self._log.warning("refused", extra={"peer": connection.address, "code": code, "why": why})
        return why
