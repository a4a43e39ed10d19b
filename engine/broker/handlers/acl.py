"""Changing the ACL from afar: what mqadmin's updateAclConfig, deleteAclConfig … ask (codes 50 to 53).

Source: AdminBrokerProcessor#updateAndCreateAccessConfig and its neighbours. 4.9.8 has no code that tells the accounts
themselves: their secrets would go with them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

from engine.broker.acl.files import AclChangeFailed
from engine.broker.requests import fields
from engine.errors import RStoreError
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.acl.files import AclFiles
    from engine.broker.net.connection import Connection
    from engine.broker.requests.later import Later
    from engine.broker.settings.current_settings import CurrentSettings
    from engine.wire.command import RemotingCommand

_TEXTS = ("accessKey", "secretKey", "whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm")
_LISTS = ("topicPerms", "groupPerms")


class AclHandler:
    """See the module."""

    def __init__(
        self,
        *,
        files: AclFiles,
        address: str,
        settings: CurrentSettings,
        later: Later,
    ) -> None:
        self._files = files
        self._address = address
        self._settings = settings
        self._later = later
        self._turn = asyncio.Lock()

    def put(self, connection: Connection, request: RemotingCommand) -> None:
        """UPDATE_AND_CREATE_ACL_CONFIG."""
        ext = request.fields
        entry: dict[str, object] = {name: ext.get(name) for name in _TEXTS}
        entry.update((name, ext[name].split(",") if ext.get(name) else None) for name in _LISTS)
        entry["admin"] = fields.flag(ext, "admin")

        def put() -> bool:
            self._files.put_account(entry)
            return True

        self._change(connection, request, put, ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED)

    def delete(self, connection: Connection, request: RemotingCommand) -> None:
        """DELETE_ACL_CONFIG."""
        access = fields.text(request.fields, "accessKey")
        why = f"The accesskey[{access}] corresponding to accessConfig has been deleted failed."

        def delete() -> bool:
            return self._files.delete_account(access)

        self._change(connection, request, delete, ResponseCode.DELETE_ACL_CONFIG_FAILED, why)

    def white(self, connection: Connection, request: RemotingCommand) -> None:
        """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG."""
        addresses = fields.text(request.fields, "globalWhiteAddrs")
        why = f"The globalWhiteAddresses[{addresses}] has been updated failed."

        def put() -> bool:
            return self._files.put_white(_patterns(addresses), request.fields.get("aclFileFullPath"))

        self._change(connection, request, put, ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED, why)

    def _change(
        self, connection: Connection, request: RemotingCommand, change: Callable[[], bool], failed: int, why: str = ""
    ) -> None:
        """Change the files beside the loop, one request after another, and answer when the accounts count.

        `change`: False: there is nothing to change, which `why` says.
        """

        async def changed() -> RemotingCommand:
            try:
                async with self._turn:
                    done = await self._later.write(change)
            except (AclChangeFailed, RStoreError) as error:
                return request.answer(failed, str(error))
            return request.answer() if done else request.answer(failed, why)

        self._later.answer(connection, request, changed())

    def version(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CLUSTER_ACL_INFO."""
        del connection
        settings = self._settings.now
        answer = {
            "version": orjson.dumps(self._files.version()).decode(),
            "allAclFileVersion": orjson.dumps(self._files.versions()).decode(),
            "brokerAddr": self._address,
            "brokerName": settings.broker_name,
            "clusterName": settings.cluster_name,
        }
        return request.answer(ext=answer)


def _patterns(text: str) -> list[str]:
    """Patterns between commas; those in braces are part of one."""
    patterns: list[str] = []
    for part in text.split(","):
        if patterns and patterns[-1].count("{") > patterns[-1].count("}"):
            patterns[-1] += "," + part
        elif part.strip():
            patterns.append(part.strip())
    return patterns
