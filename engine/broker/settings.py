"""The broker's settings by Apache's keys and defaults (BrokerConfig, NettyServerConfig), read from broker.conf."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from engine.errors import InvalidArgument
from engine.format.hosts import Host

if TYPE_CHECKING:
    from collections.abc import Mapping

FIELDS = {
    "brokerName": "broker_name",
    "brokerClusterName": "cluster_name",
    "brokerId": "broker_id",
    "brokerIP1": "broker_ip1",
    "listenPort": "listen_port",
    "autoCreateTopicEnable": "auto_create_topic",
    "autoCreateSubscriptionGroup": "auto_create_group",
    "defaultTopicQueueNums": "default_topic_queue_nums",
    "longPollingEnable": "long_polling",
    "shortPollingTimeMills": "short_polling_ms",
    "slaveReadEnable": "slave_read",
    "flushConsumerOffsetInterval": "flush_offsets_ms",
    "brokerPermission": "permission",
    "enablePropertyFilter": "property_filter",
    "transactionTimeOut": "transaction_timeout_ms",
    "transactionCheckMax": "transaction_check_max",
    "transactionCheckInterval": "transaction_check_interval_ms",
    "brokerFastFailureEnable": "fast_failure",
    "sendThreadPoolQueueCapacity": "send_queue",
    "waitTimeMillsInSendQueue": "send_wait_ms",
    "pullThreadPoolQueueCapacity": "held_pulls",
    "serverChannelMaxIdleTimeSeconds": "idle_s",
    "com.rocketmq.remoting.frameMaxLength": "frame_limit",
}
"""Keys of a broker's properties file, and the fields that they set."""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What `rstore serve` is told. Times in ms.

    Attributes:
        broker_name, cluster_name, broker_id: as clients see them.
        broker_ip1: the address that clients are told, and the storeHost of messages.
        listen_host: what is listened on.
        listen_port: the broker's; 0: any free one. The VIP port is two below.
        name_service_port: of the embedded name service; 0: any free one, None: there is none.
        metrics_port: of /metrics, /health and /ready; 0: any free one, None: there is none.
        frame_limit: largest frame, bytes.
        idle_s: a connection that neither sends nor gets anything for so many seconds is closed.
        output_limit: bytes that wait for a client that doesn't read; beyond, it is disconnected.
        held_pulls: pulls that may wait at a time.
        connections: that may be open at a time.
        fast_failure: sends that have waited for too long are refused.
        send_queue: sends that may wait for the disk at a time; more are refused.
        send_wait_ms: how long they may.
    """

    broker_name: str = "broker-a"
    cluster_name: str = "DefaultCluster"
    broker_id: int = 0
    broker_ip1: str = "127.0.0.1"
    listen_host: str = "127.0.0.1"
    listen_port: int = 10911
    name_service_port: int | None = 9876
    metrics_port: int | None = None
    auto_create_topic: bool = True
    auto_create_group: bool = True
    default_topic_queue_nums: int = 8
    long_polling: bool = True
    short_polling_ms: int = 1000
    slave_read: bool = False
    flush_offsets_ms: int = 5000
    permission: int = 6
    property_filter: bool = False
    transaction_timeout_ms: int = 6000
    transaction_check_max: int = 15
    transaction_check_interval_ms: int = 60_000
    frame_limit: int = 16 << 20
    idle_s: int = 120
    output_limit: int = 64 << 20
    held_pulls: int = 100_000
    connections: int = 20_000
    fast_failure: bool = True
    send_queue: int = 10_000
    send_wait_ms: int = 200

    @classmethod
    def of(cls, other: Mapping[str, str], **changes: Any) -> BrokerSettings:
        """From the keys of a broker's properties file that the store has no use for; None among `changes`: not given.

        Raises:
            InvalidArgument: a value that makes no sense.
        """
        found: dict[str, Any] = {}
        base = cls()
        for key, name in FIELDS.items():
            if key in other:
                found[name] = _value(key, other[key].strip(), type(getattr(base, name)))
        found.update({name: value for name, value in changes.items() if value is not None})
        made = replace(base, **found)
        made.store_host(0)
        return made

    def store_host(self, port: int) -> Host:
        """The storeHost of messages. Raises InvalidArgument: brokerIP1 is no address."""
        try:
            return Host(ipaddress.ip_address(self.broker_ip1).packed, port)
        except ValueError:
            raise InvalidArgument(f"brokerIP1 = {self.broker_ip1}: no IP address") from None


KEYS = frozenset(FIELDS)
"""The keys of a broker's properties file that `BrokerSettings.of` knows."""


def _value(key: str, text: str, kind: type) -> Any:
    if kind is bool:
        return text.lower() == "true"
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise InvalidArgument(f"{key} = {text!r} is no number") from None
    return text
