"""Subscription groups: subscriptionGroup.json, and groups made when they are asked for (SubscriptionGroupManager)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.broker.config_file import VersionedTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.broker.config_file import ConfigFile

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
    def of_json(cls, name: str, found: Mapping[str, Any]) -> GroupConfig:
        """From either. Raises ValueError, TypeError: a number that is none."""
        return cls(
            str(found.get("groupName") or name),
            bool(found.get("consumeEnable", True)),
            bool(found.get("consumeFromMinEnable", True)),
            bool(found.get("consumeBroadcastEnable", True)),
            int(found.get("retryQueueNums", 1)),
            int(found.get("retryMaxTimes", 16)),
            int(found.get("brokerId", 0)),
            int(found.get("whichBrokerWhenConsumeSlowly", 1)),
            bool(found.get("notifyConsumerIdsChangedEnable", True)),
        )


class GroupTable(VersionedTable):
    """All groups. For the loop's thread alone."""

    def __init__(self, file: ConfigFile, now_ms: Callable[[], int], *, auto_create: bool) -> None:
        super().__init__(file, now_ms)
        self.auto_create = auto_create
        self.groups = {name: GroupConfig(name) for name in _OWN}

    def load(self) -> None:
        """What subscriptionGroup.json says, over the predefined ones. Raises CannotMend, StorageError."""
        for name, said in self._read("subscriptionGroupTable").items():
            self.groups[name] = GroupConfig.of_json(name, said)

    def find(self, name: str) -> GroupConfig | None:
        """The group, made where that is allowed. Source: #findSubscriptionGroupConfig."""
        found = self.groups.get(name)
        if found is None and (self.auto_create or name.startswith(_ALWAYS)):
            found = GroupConfig(name)
            self.put(found)
        return found

    def put(self, group: GroupConfig) -> None:
        """Make or change a group; durable when this returns."""
        self.groups[group.name] = group
        self._save()

    def delete(self, name: str) -> bool:
        """Forget a group; False when there was none."""
        if self.groups.pop(name, None) is None:
            return False
        self._save()
        return True

    def to_json(self) -> dict[str, Any]:
        """SubscriptionGroupWrapper; subscriptionGroup.json."""
        return {
            "dataVersion": self.version.to_json(),
            "subscriptionGroupTable": {name: group.to_json() for name, group in self.groups.items()},
        }
