"""What a key of a 4.9.8 broker's file is: whose, its type, its default, what it means. `all_keys` has all of them.

A broker hands the same file to four objects; a key that two of them have is set in both. The names are those of the
setters, not of the fields: `enableBatchPush`, where `mqadmin getBrokerConfig` shows `isEnableBatchPush`.

Sources: BrokerStartup#createBrokerController, MixAll#properties2Object and the setters of the four classes, tag
rocketmq-all-4.9.8. A test of tests/compat holds the tables against the classes by reflection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from engine.broker_conf.values import Value, ValueKind
from engine.dataclass import dataclass

Row = tuple[str, ValueKind, Value, str]
"""Key, type, default, meaning."""


@dataclass(frozen=True, slots=True)
class Key:
    """A setting.

    Attributes:
        owner: the class of Apache's that has it.
        default: None where Java has null, or where it is the machine's.
        machine: how the machine tells the default; "" where it does not.
        meaning: one line; sizes are bytes and times are ms where it does not say otherwise.
    """

    owner: str
    name: str
    kind: ValueKind
    default: Value
    meaning: str
    machine: str = ""


BY_PROCESSORS: Mapping[str, tuple[str, Callable[[int], int]]] = {
    "sendMessageThreadPoolNums": ("number of processors, at most 4", lambda n: min(n, 4)),
    "putMessageFutureThreadPoolNums": ("number of processors, at most 4", lambda n: min(n, 4)),
    "pullMessageThreadPoolNums": ("16 + 2 × processors", lambda n: 16 + 2 * n),
    "processReplyMessageThreadPoolNums": ("16 + 2 × processors", lambda n: 16 + 2 * n),
    "queryMessageThreadPoolNums": ("8 + processors", lambda n: 8 + n),
    "heartbeatThreadPoolNums": ("processors, at most 32", lambda n: min(n, 32)),
    "endTransactionThreadPoolNums": (
        "8 + 2 × processors, at least 4 × sendMessageThreadPoolNums",
        lambda n: max(8 + 2 * n, 4 * min(n, 4)),
    ),
    "clientCallbackExecutorThreads": ("processors", lambda n: n),
}
"""Defaults that are made of the number of processors."""
_BY_MACHINE = {
    "brokerIP1": "the machine's own address",
    "brokerIP2": "the machine's own address",
    "brokerName": "the machine's host name",
    "rocketmqHome": "ROCKETMQ_HOME",
    "namesrvAddr": "NAMESRV_ADDR",
    "storePathRootDir": "$HOME/store",
    "storePathCommitLog": "storePathRootDir/commitlog",
}


def keys_of(owner: str, rows: Iterable[Row]) -> tuple[Key, ...]:
    """The keys of one class."""
    return tuple(Key(owner, *row, _machine(row[0])) for row in rows)


def _machine(name: str) -> str:
    return BY_PROCESSORS[name][0] if name in BY_PROCESSORS else _BY_MACHINE.get(name, "")
