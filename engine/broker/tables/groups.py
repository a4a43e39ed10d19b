"""Subscription groups: subscriptionGroup.json, and groups made when they are asked for (SubscriptionGroupManager)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.broker.requests import fields
from engine.broker.tables.config_file import VersionedTable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from engine.broker.tables.config_file import ConfigFile

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


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One group (SubscriptionGroupConfig)."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queues: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True

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

    def take(self, table: dict[str, Any]) -> None:
        """A master's groups instead of ours. Raises CannotRepair, StorageError."""
        self._take(table, "subscriptionGroupTable", GroupConfig.of_json)

    def find(self, name: str) -> GroupConfig | None:
        """The group, made where that is allowed. Source: #findSubscriptionGroupConfig."""
        group = self.groups.get(name)
        if group is None and (self.auto_create or name.startswith(_ALWAYS)):
            group = GroupConfig(name)
            self._put_soon(name, group)
        return group

    def put(self, group: GroupConfig) -> None:
        """Make or change a group; durable when this returns. Raises DiskFull, StorageError: nothing has changed."""
        self._put(group.name, group)

    def delete(self, name: str) -> bool:
        """Forget a group; False when there was none. Raises DiskFull, StorageError: nothing has changed."""
        if name not in self.groups:
            return False
        self._put(name, None)
        return True

    def _as_json(self, table: Mapping[str, GroupConfig]) -> dict[str, Any]:
        """SubscriptionGroupWrapper; subscriptionGroup.json."""
        return {"subscriptionGroupTable": {name: group.to_json() for name, group in table.items()}}
