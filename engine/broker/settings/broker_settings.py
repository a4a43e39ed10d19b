"""The broker's settings by Apache's keys and defaults (BrokerConfig, NettyServerConfig), read from broker.conf."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from engine.broker.ha import settings as ha
from engine.broker.ha.settings import HaSettings
from engine.broker.net import tls
from engine.broker.net.allow import AllowList, parse_allow_list
from engine.broker.net.tls import TlsMode, TlsSettings
from engine.broker_conf.all_keys import all_keys
from engine.broker_conf.values import ValueKind, demand, read_value, shown
from engine.dataclass import dataclass
from engine.errors import InvalidArgument
from engine.format.hosts import Host, is_loopback
from engine.format.numbers import INT_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.backup.archive.job import ArchiveAccess

FIELDS = {
    "brokerName": "broker_name",
    "brokerClusterName": "cluster_name",
    "brokerId": "broker_id",
    "brokerIP1": "broker_ip1",
    "listenPort": "listen_port",
    "autoCreateTopicEnable": "auto_create_topic",
    "maxAutoCreatedTopics": "max_auto_created_topics",
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
    "storeReplyMessageEnable": "store_reply",
    "filterDataCleanTimeSpan": "filter_data_ms",
    "aclEnable": "acl_enable",
    "rocketmqHome": "rocketmq_home",
    "rocketmq.acl.plain.file": "acl_file",
    "aclStrict": "acl_strict",
    "namesAllow": "names_allow",
    "adminAllow": "admin_allow",
    "namesrvAddr": "name_servers",
    "registerNameServerPeriod": "register_period_ms",
    "registerBrokerTimeoutMills": "register_timeout_ms",
    "forceRegister": "force_register",
    "compressedRegister": "compressed_register",
    "orderMessageEnable": "order_message_enable",
    "brokerIP2": "broker_ip2",
    "brokerFastFailureEnable": "fast_failure",
    "sendThreadPoolQueueCapacity": "send_queue",
    "waitTimeMillsInSendQueue": "send_wait_ms",
    "pullThreadPoolQueueCapacity": "held_pulls",
    "serverChannelMaxIdleTimeSeconds": "idle_s",
    "com.rocketmq.remoting.frameMaxLength": "frame_limit",
    "maxGroupsPerClient": "groups_per_client",
    "maxSubscriptionsPerHeartbeat": "subscriptions_per_heartbeat",
    "maxFiltersPerGroup": "filters_per_group",
    "maxConsumerFilters": "consumer_filters",
    "maxTopicsPerRegistration": "topics_per_registration",
    "timerWheelEnable": "timer_messages",
    "timerMaxDelaySec": "timer_most_s",
    "timerPrecisionMs": "timer_precision_ms",
    "timerCongestNumEachSlot": "timer_most_a_slot",
    "recallMessageEnable": "recall",
}
"""Keys of a broker's properties file, and the fields that they set."""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What `rstore serve` is told. Times in ms.

    Attributes:
        broker_name, cluster_name, broker_id: as clients see them.
        broker_ip1: the address that clients get, and the storeHost of messages.
        listen_host: what is listened on.
        listen_port: the broker's; 0: any free one. The VIP port is two below.
        name_service_port: of the embedded name service; 0: any free one, None: there is none.
        metrics_port: of /metrics, /health and /ready; 0: any free one, None: there is none.
        frame_limit: largest frame, bytes.
        idle_s: seconds of silence after which a connection is closed.
        input_limit: bytes of frames that aren't whole yet, of all clients of a port; beyond, the slowest is cut off.
        output_limit: bytes that wait for a client that doesn't read; beyond, it is disconnected.
        held_pulls: pulls that may wait at a time.
        max_auto_created_topics: that sends create; one more is refused. Ours: Apache has no limit.
        connections: that may be open at a time.
        store_reply: whether replies to requests are stored, too.
        filter_data_ms: how long the SQL filters of a group are kept that has gone.
        config_file: the properties file that the settings are from; None without one.
        acl_enable, acl_file, rocketmq_home: Apache's plain ACL, see `acl_paths`.
        acl_strict: accounts need rights where Apache asks for none (`engine.broker.acl.strict`).
        names_allow: addresses that may write to the name service, though they sign nothing.
        admin_allow: addresses besides this machine's that may change settings and delete files.
        name_servers: `host:port;host:port` to register with, "" for none.
        register_period_ms: 10 to 60 s. `register_timeout_ms`: of one registration.
        force_register: in each period, whether anything has changed or not.
        order_message_enable: routes tell the order of an ordered topic's queues.
        broker_ip2: where slaves find us, as name servers get it.
        ha: of replication.
        tls: of all listeners, and of our own connections to name servers.
        fast_failure: sends that have waited for too long are refused.
        send_queue: sends that may wait for the disk at a time; more are refused.
        send_wait_ms: how long they may.
        groups_per_client, subscriptions_per_heartbeat: beyond, a heartbeat is refused.
        filters_per_group: SQL filters; beyond, a heartbeat is refused. consumer_filters: that are kept, of all groups.
        topics_per_registration: of a broker at our name server; beyond, the registration is refused.
        timer_messages: whether they are taken; timer_most_s: how far their time may lie ahead (s).
        timer_precision_ms: 100, 200, 500 or 1000; TIMER_OUT_MS is a multiple of it (RocketMQ 5's wheel).
        timer_most_a_slot: that may wait for one of those; beyond, some are refused, above the double all.
        recall: whether producers may take timer messages back.
        scrub_period_ms: in which the log is read once and compared with its seals; None: it isn't.
        scrub_rate: bytes a second that are read for it at most; None: as the period needs.
        seals: whether complete segments are sealed for it.
        archive: without which retention deletes no segment; None: it deletes what has expired.
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
    max_auto_created_topics: int = 10_000
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
    input_limit: int = 256 << 20
    output_limit: int = 64 << 20
    held_pulls: int = 100_000
    connections: int = 20_000
    store_reply: bool = True
    filter_data_ms: int = 24 * 3_600_000
    config_file: str | None = None
    acl_enable: bool = False
    acl_file: str = "conf/plain_acl.yml"
    rocketmq_home: str = ""
    acl_strict: bool = True
    names_allow: AllowList = field(default_factory=AllowList)
    admin_allow: AllowList = field(default_factory=AllowList)
    name_servers: str = ""
    register_period_ms: int = 30_000
    register_timeout_ms: int = 6000
    force_register: bool = True
    compressed_register: bool = False
    order_message_enable: bool = False
    broker_ip2: str = ""
    ha: HaSettings = field(default_factory=HaSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    fast_failure: bool = True
    send_queue: int = 10_000
    send_wait_ms: int = 200
    groups_per_client: int = 5000
    subscriptions_per_heartbeat: int = 10_000
    filters_per_group: int = 1000
    consumer_filters: int = 10_000
    topics_per_registration: int = 100_000
    timer_messages: bool = True
    timer_most_s: int = 3 * 24 * 3600
    timer_precision_ms: int = 1000
    timer_most_a_slot: int = INT_MAX
    recall: bool = False
    scrub_period_ms: int | None = None
    scrub_rate: int | None = None
    seals: bool = False
    archive: ArchiveAccess | None = None

    @classmethod
    def of(cls, other: Mapping[str, str], **changes: Any) -> BrokerSettings:
        """From the keys of a broker's properties file that are not the store's; None among `changes`: not given.

        A value that Apache's broker can't read is left out, as there.

        Raises:
            InvalidArgument: a value that makes no sense.
        """
        fields: dict[str, Any] = {}
        base = cls()
        for key, name in FIELDS.items():
            if key in other:
                with contextlib.suppress(ValueError):
                    fields[name] = _value(key, other[key], type(getattr(base, name)))
        if changes.get("tls") is None:
            fields["tls"] = TlsSettings.of(other)
        if changes.get("ha") is None:
            fields["ha"] = HaSettings.of(other)
        fields.update({name: value for name, value in changes.items() if value is not None})
        made = replace(base, **fields)
        made.store_host(0)
        return made

    def acl_paths(self) -> tuple[str, str]:
        """The ACL's file, and the directory of further ones: in conf/ of rocketmqHome, or beside a file named in full.

        Raises:
            InvalidArgument: there is no such place. Source: PlainPermissionManager.
        """
        if os.path.isabs(self.acl_file):
            return self.acl_file, os.path.join(os.path.dirname(self.acl_file), "acl")
        home = self.rocketmq_home or os.environ.get("ROCKETMQ_HOME", "")
        if not home:
            raise InvalidArgument(
                "aclEnable without a directory of ACL files: set --acl, rocketmqHome or ROCKETMQ_HOME"
            )
        return os.path.join(home, self.acl_file), os.path.join(home, "conf", "acl")

    @property
    def is_guarded(self) -> bool:
        """Whether an ACL or enforced TLS says that not everybody is to get in."""
        return self.acl_enable or self.tls.mode is TlsMode.ENFORCING

    @property
    def open_to_all(self) -> str | None:
        """What clients of other machines may do that nobody has allowed them; None: nothing."""
        if is_loopback(self.listen_host):
            return None
        enforced = self.tls.mode is TlsMode.ENFORCING
        if self.acl_enable:
            return None if enforced else "without enforced TLS: messages can be read on their way"
        if enforced and self.tls.demands_certificates:
            return None
        return "without ACL or client certificates: any client may read and write"

    def store_host(self, port: int) -> Host:
        """The storeHost of messages. Raises InvalidArgument: brokerIP1 is no address."""
        try:
            return Host(ipaddress.ip_address(self.broker_ip1).packed, port)
        except ValueError:
            raise InvalidArgument(f"brokerIP1 = {self.broker_ip1}: not an IP address") from None


_BOOLEANS = ("true", "false")
KEYS = frozenset(FIELDS) | tls.KEYS | ha.KEYS
"""The keys of a broker's properties file that `BrokerSettings.of` knows."""


def demand_readable(changes: Mapping[str, str]) -> None:
    """Raises InvalidArgument: a value among them is one that Apache's broker can't read, and would leave out."""
    for key, text in changes.items():
        for known in all_keys().get(key, ()):
            demand(key, known.kind, text)


def _value(key: str, text: str, kind: type) -> Any:
    """Raises ValueError: Apache can't read it. InvalidArgument: of a key that Apache reads from no file."""
    if key in all_keys():
        return read_value(all_keys()[key][0].kind, text)
    text = text.strip()
    if kind is int:
        return demand(key, ValueKind.INT, text)
    if kind is AllowList:
        return parse_allow_list(key, text)
    if kind is bool:
        if text.lower() not in _BOOLEANS:  # a guess at what opens or closes a door is nobody's wish
            raise InvalidArgument(f"{key} = {shown(text)} is neither true nor false")
        return text.lower() == "true"
    return text
