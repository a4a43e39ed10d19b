"""Names that stand in many a broker.conf, and that a 4.9.8 broker does not read there."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from engine.broker_conf.all_keys import all_keys

_RENAMED = "the name up to 4.5: {} is read"
_RSTORE = "a setting of rstore serve, which a broker does not have"

NOT_KEYS: Mapping[str, str] = {
    "mapedFileSizeCommitLog": _RENAMED.format("mappedFileSizeCommitLog"),
    "mapedFileSizeConsumeQueue": _RENAMED.format("mappedFileSizeConsumeQueue"),
    "mapedFileSizeConsumeQueueExt": _RENAMED.format("mappedFileSizeConsumeQueueExt"),
    "storePathConsumeQueue": "queues are always in consumequeue/ of storePathRootDir",
    "storePathConsumeQueueExt": "extensions are always in consumequeue_ext/ of storePathRootDir",
    "storePathIndex": "the index is always in index/ of storePathRootDir",
    "storeCheckpoint": "the checkpoint is always in storePathRootDir",
    "abortFile": "the abort file is always in storePathRootDir",
    "checkTransactionMessageEnable": "no longer a setting: transactions are always checked",
    "isEnableBatchPush": "shown under this name, and read as enableBatchPush",
    "brokerConfigPath": "set by the broker itself, from -c",
    **dict.fromkeys(
        (
            *("aclStrict", "namesAllow", "adminAllow", "maxAutoCreatedTopics", "maxGroupsPerClient"),
            *("maxSubscriptionsPerHeartbeat", "maxFiltersPerGroup", "maxConsumerFilters", "maxTopicsPerRegistration"),
            *("haTls", "haAllow", "haListen"),
        ),
        _RSTORE,
    ),
}
"""Name → why it is not read."""
STARTUP_KEYS = {
    "rmqAddressServerDomain": "host of the address server",
    "rmqAddressServerSubGroup": "path of the address server",
}
"""Keys that the start of a broker reads itself. Source: BrokerStartup#properties2SystemEnv."""
_OF_THE_JVM = ("rocketmq.", "com.rocketmq.", "tls.")


def why_not(name: str) -> str | None:
    """Why a broker does not read it from its file; None: it has never heard of it."""
    if name in NOT_KEYS:
        return NOT_KEYS[name]
    if is_of_the_jvm(name):
        return f"a JVM property: a broker takes it only as -D{name}=…; rstore also reads it here"
    return None


def is_of_the_jvm(name: str) -> bool:
    """Whether a broker takes it as a property of its JVM."""
    return name.startswith(_OF_THE_JVM)


def nearest(name: str) -> str | None:
    """The key that was meant, if there is one like it."""
    known = [*all_keys(), *NOT_KEYS, *STARTUP_KEYS]
    same = [key for key in known if key.lower() == name.strip().lower()]
    return next(iter(same or difflib.get_close_matches(name, known, 1, 0.8)), None)
