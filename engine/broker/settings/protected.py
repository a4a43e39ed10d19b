"""Settings that nobody changes over the wire: where files and ports are, what the broker is, and who may get in.

A line of broker.conf that a request writes is read by the next start, as whoever runs the daemon: a path would have it
write anywhere, an address give its log to anybody, a switch open all doors. Apache's broker takes such lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_WHY = {
    "a path": "storePathRootDir storePathCommitLog storePathDLedgerCommitLog readOnlyCommitLogStorePaths rocketmqHome "
    "messageStorePlugIn rocketmq.acl.plain.file kvConfigPath configStorePath brokerConfigPath",
    "a port or an address": "listenPort haListenPort brokerIP1 brokerIP2 namesrvAddr haMasterAddress bindAddress "
    "fetchNamesrvAddrByAddressServer rmqAddressServerDomain rmqAddressServerSubGroup",
    "what the broker is": "brokerRole brokerId brokerName brokerClusterName enableDLegerCommitLog dLegerGroup "
    "dLegerPeers dLegerSelfId preferredLeaderId",
    "who may get in": "aclEnable aclStrict adminAllow namesAllow configBlackList useTLS filterServerNums",
}
_BY_KEY = {key: why for why, keys in _WHY.items() for key in keys.split()}
_BY_START = (
    ("tls.", "who may get in"),
    ("haTls", "who may get in"),
    ("haListen", "a port or an address"),
    ("haBind", "a port or an address"),
    ("storePath", "a path"),
)
_BY_END = (("Path", "a path"), ("Port", "a port or an address"), ("Allow", "who may get in"))


def why_protected(key: str) -> str | None:
    """What a key that may not be changed over the wire is; None: it may."""
    if key in _BY_KEY:
        return _BY_KEY[key]
    by_start = next((why for start, why in _BY_START if key.startswith(start)), None)
    by_end = next((why for end, why in _BY_END if key.endswith(end)), None)
    return by_start or by_end


def refusal(changes: Iterable[str] | Mapping[str, str], where: str = "broker.conf") -> str | None:
    """Why these keys are not changed, None: they may be. `where`: the file that may have them."""
    for key in changes:
        why = why_protected(key)
        if why is not None:
            return f"{key} is {why}: not changed over the wire; set it in {where} and restart"
    return None
