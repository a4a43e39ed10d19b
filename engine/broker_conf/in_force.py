"""What is in force in a broker that was started with a properties file.

Two steps, as in Apache: each of the four objects takes what it can read (`of_file`), then the start overrules some
(`started`). Values are those that the getters tell, as the broker goes by them.

Sources: MixAll#properties2Object, BrokerStartup#createBrokerController, MessageStoreConfig's getters.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from engine.broker_conf.all_keys import all_keys
from engine.broker_conf.disk_levels import max_used
from engine.broker_conf.keys import BY_PROCESSORS, Key
from engine.broker_conf.values import Value, read_value
from engine.format.numbers import INT_MAX, INT_MIN
from engine.format.queue_unit import UNIT_SIZE

InForce = dict[tuple[str, str], Value]
"""Class and key → value."""
STORE, BROKER = "MessageStoreConfig", "BrokerConfig"
REGISTER_LIMITS = (10_000, 60_000)
"""ms that a broker limits registerNameServerPeriod to."""
SERVER, CLIENT = "NettyServerConfig", "NettyClientConfig"


def of_file(values: Mapping[str, str]) -> InForce:
    """What the four objects hold of a file with these values."""
    settings: InForce = {}
    for name, keys in all_keys().items():
        for key in keys:
            settings[key.owner, name] = _read(key, values.get(name))
    _by_getters(settings)
    return settings


def started(settings: InForce) -> InForce:
    """The same once the broker has started."""
    settings = dict(settings)
    if settings[STORE, "brokerRole"] != "SLAVE":
        settings[BROKER, "brokerId"] = 0
    if settings[STORE, "enableDLegerCommitLog"]:
        settings[BROKER, "brokerId"] = -1
    bits = _filter_bits(settings[BROKER, "maxErrorRateOfBloomFilter"], settings[BROKER, "expectConsumerNumUseFilter"])
    settings[STORE, "bitMapLengthConsumeQueueExt"] = bits or settings[STORE, "bitMapLengthConsumeQueueExt"]
    period = settings[BROKER, "registerNameServerPeriod"]
    if isinstance(period, int):  # Source: BrokerController#start
        settings[BROKER, "registerNameServerPeriod"] = min(max(period, REGISTER_LIMITS[0]), REGISTER_LIMITS[1])
    port = settings[SERVER, "listenPort"]
    settings[STORE, "haListenPort"] = None if not isinstance(port, int) else port + 1
    return settings


def default_of(key: Key) -> Value:
    """Without a file; None where only Java can tell, or has null."""
    if key.name in BY_PROCESSORS:
        return BY_PROCESSORS[key.name][1](_processors())
    if key.name == "storePathRootDir":
        return os.path.join(os.path.expanduser("~"), "store")
    if key.name == "rocketmqHome":
        return os.environ.get("ROCKETMQ_HOME")
    if key.name == "namesrvAddr":
        return os.environ.get("NAMESRV_ADDR")
    return key.default


def queue_file_size(setting: int) -> int:
    """What a broker makes queue files of: whole units. Source: MessageStoreConfig#getMappedFileSizeConsumeQueue."""
    size = -(-setting // UNIT_SIZE) * UNIT_SIZE
    return (size - INT_MIN) % (1 << 32) + INT_MIN


def _read(key: Key, text: str | None) -> Value:
    if text is not None:
        try:
            return read_value(key.kind, text)
        except ValueError:
            pass
    return default_of(key)


def _by_getters(settings: InForce) -> None:
    size, ratio = settings[STORE, "mappedFileSizeConsumeQueue"], settings[STORE, "diskMaxUsedSpaceRatio"]
    if isinstance(size, int) and isinstance(ratio, int):
        settings[STORE, "mappedFileSizeConsumeQueue"] = queue_file_size(size)
        settings[STORE, "diskMaxUsedSpaceRatio"] = max_used(ratio)
    if settings[STORE, "storePathCommitLog"] is None:
        settings[STORE, "storePathCommitLog"] = f"{settings[STORE, 'storePathRootDir']}{os.sep}commitlog"
    if settings[STORE, "flushDiskType"] != "ASYNC_FLUSH" or settings[STORE, "brokerRole"] == "SLAVE":
        settings[STORE, "transientStorePoolEnable"] = False


def _filter_bits(errors: Value, consumers: Value) -> int | None:
    """Bits of a Bloom filter in whole bytes; None where a broker makes none.

    Source: ConsumerFilterManager#ConsumerFilterManager, BloomFilter#createByFn.
    """
    if not isinstance(errors, int) or not isinstance(consumers, int) or not 0 < errors < 100 or consumers < 1:
        return None
    bits = math.ceil(consumers * math.log2(100 / errors) * math.log2(math.e))
    return min(-(-bits // 8) * 8, INT_MAX)


def _processors() -> int:
    return len(os.sched_getaffinity(0))
