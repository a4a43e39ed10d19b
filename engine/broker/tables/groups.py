"""Subscription groups: subscriptionGroup.json, and groups made when they are asked for (SubscriptionGroupManager)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from engine.broker.requests import fields
from engine.broker.requests.answers import Answer
from engine.broker.tables.config_file import VersionedTable
from engine.dataclass import dataclass
from engine.format.topic_rules import refused_group
from engine.wire.codes import ResponseCode

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from engine.broker.tables.config_file import ConfigFile
    from engine.errors import RStoreError

_OWN = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
_ALWAYS = "CID_RMQ_SYS_"


NEWER: Mapping[str, Any] = {
    "attributes": {},
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
}
"""What a group has besides in RocketMQ 5, where nobody has set it. Source: SubscriptionGroupConfig (5.3.3)."""
_NEWER = (*NEWER, "subscriptionDataSet")


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One group (SubscriptionGroupConfig). `newer`: what RocketMQ 5 has besides, as JSON text by key."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queues: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    newer: tuple[tuple[str, bytes], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As subscriptionGroup.json and clients have it."""
        return {
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "groupName": self.name,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queues,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_consume_slowly,
            **{key: orjson.loads(text) for key, text in self.newer},
        }

    @classmethod
    def of_json(cls, name: str, entry: Mapping[str, Any]) -> GroupConfig:
        """From either. Raises Answer: an invalid number."""
        return cls(
            str(entry.get("groupName") or name),
            bool(entry.get("consumeEnable", True)),
            bool(entry.get("consumeFromMinEnable", True)),
            bool(entry.get("consumeBroadcastEnable", True)),
            fields.whole(entry, "retryQueueNums", 1),
            fields.whole(entry, "retryMaxTimes", 16),
            fields.whole(entry, "brokerId", 0),
            fields.whole(entry, "whichBrokerWhenConsumeSlowly", 1),
            bool(entry.get("notifyConsumerIdsChangedEnable", True)),
            tuple((key, orjson.dumps(entry[key])) for key in _NEWER if entry.get(key) not in (None, NEWER.get(key))),
        )


class GroupTable(VersionedTable[GroupConfig]):
    """All groups. For the loop's thread alone."""

    def __init__(
        self, file: ConfigFile, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int], *, auto_create: bool
    ) -> None:
        super().__init__(file, loop, now_ms)
        self.auto_create = auto_create
        self.groups = self._table
        self.groups.update((name, GroupConfig(name)) for name in _OWN)

    def load(self) -> None:
        """What subscriptionGroup.json says, over the predefined ones. Raises CannotRepair, StorageError."""
        self.groups.update(self._read("subscriptionGroupTable", GroupConfig.of_json))

    async def take(self, table: dict[str, Any]) -> None:
        """A master's groups instead of ours. Raises CannotRepair, StorageError."""
        await self._take(table, "subscriptionGroupTable", GroupConfig.of_json)

    def find(self, name: str) -> GroupConfig | None:
        """The group, made where that is allowed. Source: #findSubscriptionGroupConfig.

        Raises:
            Answer: there is none, and a client of Apache's would not take the name.
        """
        group = self.groups.get(name)
        if group is None:
            self.demand_name(name)
        if group is None and (self.auto_create or name.startswith(_ALWAYS)):
            group = GroupConfig(name)
            self._put_soon(name, group)
        return group

    def demand_name(self, name: str) -> None:
        """Raises Answer: a client of Apache's would refuse a group of this name, and we have none. It may become a
        directory's name, and stands in logs and on terminals."""
        wrong = None if name in self.groups else refused_group(name)
        if wrong is not None:
            raise Answer(ResponseCode.SYSTEM_ERROR, wrong)

    def put(self, group: GroupConfig, done: Callable[[RStoreError | None], None]) -> None:
        """Make or change a group; `done` is called when that is durable, or with why nothing has changed.

        Raises:
            Answer: as `find`.
        """
        self.demand_name(group.name)
        self._put(group.name, group, done)

    def delete(self, name: str, done: Callable[[RStoreError | None], None]) -> None:
        """Forget a group, if there is one; `done` as of `put`."""
        self._put(name, None, done)

    def _as_json(self, table: Mapping[str, GroupConfig]) -> dict[str, Any]:
        """SubscriptionGroupWrapper; subscriptionGroup.json."""
        return {"subscriptionGroupTable": {name: group.to_json() for name, group in table.items()}}
