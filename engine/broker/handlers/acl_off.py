"""What is answered to who wants to change the ACL (codes 50 to 53) where there is none: the reason, not only a code.

Apache's broker answers these codes with a NullPointerException's empty text (AdminBrokerProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    from engine.broker.net.connection import Connection
    from engine.wire.command import RemotingCommand

ACL_OFF = "ACL is off: set aclEnable=true in broker.conf, or start rstore serve with --acl FILE"


class AclOff:
    """See the module."""

    def put(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_ACL_CONFIG."""
        del connection
        return request.answer(ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED, ACL_OFF)

    def delete(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """DELETE_ACL_CONFIG."""
        del connection
        return request.answer(ResponseCode.DELETE_ACL_CONFIG_FAILED, ACL_OFF)

    def white(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG."""
        del connection
        return request.answer(ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED, ACL_OFF)

    def version(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CLUSTER_ACL_INFO."""
        del connection
        return request.answer(ResponseCode.SYSTEM_ERROR, ACL_OFF)
