"""What mqadmin asks of the name service beside routes (remoting.md 2.4; DefaultRequestProcessor)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from engine.broker import fields
from engine.broker.handlers.admin_broker import properties_of
from engine.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.broker.broker import Broker
    from engine.broker.connection import Connection
    from engine.broker.server import Handler
    from engine.wire.command import RemotingCommand

_UNIT, _UNIT_SUB = 1, 2
"""Bits of topicSysFlag. Source: TopicSysFlag."""
_BLACK_LIST = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})


def name_admin_handlers(broker: Broker) -> dict[int, Handler]:
    """What the name service's port answers to administrators."""
    code, admin = RequestCode, NameAdmin(broker)
    return {
        code.WIPE_WRITE_PERM_OF_BROKER: admin.wipe_write,
        code.ADD_WRITE_PERM_OF_BROKER: admin.add_write,
        code.GET_UNIT_TOPIC_LIST: admin.unit_topics,
        code.GET_HAS_UNIT_SUB_TOPIC_LIST: admin.unit_sub_topics,
        code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: admin.unit_sub_topics_of_no_unit,
        code.GET_NAMESRV_CONFIG: admin.config,
        code.UPDATE_NAMESRV_CONFIG: admin.update_config,
    }


class NameAdmin:
    """See the module."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def wipe_write(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """WIPE_WRITE_PERM_OF_BROKER."""
        del connection
        count = self._broker.names.wipe_write() if self._ours(request) else 0
        return request.answer(ext={"wipeTopicCount": str(count)})

    def add_write(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """ADD_WRITE_PERM_OF_BROKER."""
        del connection
        count = self._broker.names.add_write() if self._ours(request) else 0
        return request.answer(ext={"addTopicCount": str(count)})

    def unit_topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_UNIT_TOPIC_LIST."""
        del connection
        return self._topics(request, lambda flag: bool(flag & _UNIT))

    def unit_sub_topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_HAS_UNIT_SUB_TOPIC_LIST."""
        del connection
        return self._topics(request, lambda flag: bool(flag & _UNIT_SUB))

    def unit_sub_topics_of_no_unit(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST."""
        del connection
        return self._topics(request, lambda flag: flag & (_UNIT | _UNIT_SUB) == _UNIT_SUB)

    def config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """GET_NAMESRV_CONFIG."""
        del connection
        lines = "".join(f"{key}={value}\n" for key, value in sorted(self._broker.names.settings.items()))
        return request.answer(body=lines.encode())

    def update_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_NAMESRV_CONFIG: for as long as the daemon runs; keys that there are not change nothing."""
        del connection
        changes = properties_of(request)
        if changes is None:
            return request.answer(ResponseCode.SYSTEM_ERROR, "string2Properties error")
        if not _BLACK_LIST.isdisjoint(changes):
            return request.answer(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        settings = self._broker.names.settings
        settings.update({key: value for key, value in changes.items() if key in settings})
        return request.answer()

    def _ours(self, request: RemotingCommand) -> bool:
        return fields.text(request.fields, "brokerName") == self._broker.settings.broker_name

    def _topics(self, request: RemotingCommand, wanted: Callable[[int], bool]) -> RemotingCommand:
        found = [name for name, topic in self._broker.topics.topics.items() if wanted(topic.sys_flag)]
        return request.answer(body=orjson.dumps({"topicList": found}))
