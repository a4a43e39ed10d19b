"""What a broker does not start with, whatever store it has. tests/compat/test_starts.py has Apache's own try each.

Sources are named at each rule; the classes are those of 4.9.8.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from engine.broker_conf.facts import VALUE_ALONE, Danger, Facts
from engine.broker_conf.in_force import BROKER, CLIENT, SERVER, STORE
from engine.broker_conf.values import first_wrong, shown, split
from engine.errors import InvalidArgument
from engine.format.delay import DelayLevels
from engine.format.numbers import INT_MAX, INT_MIN, read_java_int

PORT_MAX = 65_535
_CLASS = re.compile(r"[\w$.]+")

_POOLS = (
    *("sendMessageThreadPoolNums", "putMessageFutureThreadPoolNums", "pullMessageThreadPoolNums"),
    *("processReplyMessageThreadPoolNums", "queryMessageThreadPoolNums", "adminBrokerThreadPoolNums"),
    *("clientManageThreadPoolNums", "consumerManageThreadPoolNums", "heartbeatThreadPoolNums"),
    "endTransactionThreadPoolNums",
)
_QUEUES = (
    *("sendThreadPoolQueueCapacity", "putThreadPoolQueueCapacity", "pullThreadPoolQueueCapacity"),
    *("replyThreadPoolQueueCapacity", "queryThreadPoolQueueCapacity", "clientManagerThreadPoolQueueCapacity"),
    *("consumerManagerThreadPoolQueueCapacity", "heartbeatThreadPoolQueueCapacity"),
    "endTransactionPoolQueueCapacity",
)
_POOL, _QUEUE, _PERIOD = (
    "a thread pool must not be empty",
    "a queue must hold at least one request",
    "a period must be above 0",
)

AT_LEAST: Mapping[tuple[str, str], tuple[int, str]] = {
    **{(BROKER, key): (1, _POOL) for key in _POOLS},
    **{(BROKER, key): (1, _QUEUE) for key in _QUEUES},
    (BROKER, "flushConsumerOffsetInterval"): (1, _PERIOD),
    (STORE, "cleanResourceInterval"): (1, _PERIOD),
    (STORE, "flushDelayOffsetInterval"): (1, _PERIOD),
    (SERVER, "serverWorkerThreads"): (1, _POOL),
    (SERVER, "serverSelectorThreads"): (0, "a number of threads must not be negative"),
    (CLIENT, "clientWorkerThreads"): (1, _POOL),
    (BROKER, "expectConsumerNumUseFilter"): (1, "a filter bit map needs at least one consumer"),
    (BROKER, "maxErrorRateOfBloomFilter"): (1, "must be a percentage, 1 to 99"),
}
"""Class and key → the lowest number that a broker starts with, and why.

Sources: BrokerController (ThreadPoolExecutor, LinkedBlockingQueue, ScheduledExecutorService#scheduleAtFixedRate),
DefaultMessageStore#addScheduleTask, ScheduleMessageService#start, NettyRemotingServer, NettyRemotingClient,
BloomFilter#createByFn."""

_ERRORS_MAX = 99


def start_dangers(facts: Facts) -> Iterator[Danger]:
    """All that keep a broker from starting."""
    for rule in _RULES:
        yield from rule(facts)


def _stop(what: str, hint: str, *keys: str) -> Danger:
    return Danger(keys, what, hint, stops=True)


def _numbers(facts: Facts) -> Iterator[Danger]:
    for (owner, key), (least, why) in AT_LEAST.items():
        number = facts.number(owner, key)
        if number < least and not (key == "flushDelayOffsetInterval" and _no_deliveries(facts)):
            yield _stop(f"{key} = {number}: {why}", f"set {key} to at least {least}", key)
    errors = facts.number(BROKER, "maxErrorRateOfBloomFilter")
    if errors > _ERRORS_MAX:
        key = "maxErrorRateOfBloomFilter"
        yield _stop(f"{key} = {errors}: {AT_LEAST[BROKER, key][1]}", f"set {key} to at most {_ERRORS_MAX}", key)
    segment, buffers = facts.number(STORE, "mappedFileSizeCommitLog"), facts.number(STORE, "transientStorePoolSize")
    if facts.store("transientStorePoolEnable") and segment < 0 < buffers:
        what = f"transientStorePoolEnable with mappedFileSizeCommitLog = {segment}: a write buffer can't have this size"
        hint = "set mappedFileSizeCommitLog to at least 4096"
        yield _stop(what, hint, "transientStorePoolEnable", "mappedFileSizeCommitLog")
    low, high = (facts.number(SERVER, f"writeBuffer{which}WaterMark") for which in ("Low", "High"))
    if low > high > 0:
        yield _stop(
            f"writeBufferLowWaterMark = {low} is above writeBufferHighWaterMark = {high}",
            "set writeBufferLowWaterMark below writeBufferHighWaterMark",
            *("writeBufferLowWaterMark", "writeBufferHighWaterMark"),
        )


def _no_deliveries(facts: Facts) -> bool:
    """Source: DefaultMessageStore#start, #handleScheduleMessageService."""
    return facts.store("brokerRole") == "SLAVE" or bool(facts.store("enableDLegerCommitLog"))


def _delays(facts: Facts) -> Iterator[Danger]:
    """Source: ScheduleMessageService#parseDelayLevel, whose false is that of DefaultMessageStore#load."""
    text = facts.text(STORE, "messageDelayLevel")
    try:
        DelayLevels.parse(text)
    except InvalidArgument as error:
        if text.strip(" ") or not text:
            what = f"messageDelayLevel = {shown(text)} is not a list of times"
            yield _stop(what, error.hint or "", "messageDelayLevel")
            return
        yield Danger(
            ("messageDelayLevel",),
            "messageDelayLevel names no level: the broker puts delayed messages into queue −1 and never delivers them",
            error.hint or "",
        )


def _role(facts: Facts) -> Iterator[Danger]:
    """Source: BrokerStartup#createBrokerController, which looks at the role before DLedger overrules the number.

    RocketMQ 5 leaves that to its controller, with `enableControllerMode`. Source: #buildBrokerController (5.3.3).
    """
    number = facts.read[BROKER, "brokerId"]
    controlled = facts.written.get("enableControllerMode", "").lower() == "true"
    if facts.store("brokerRole") == "SLAVE" and isinstance(number, int) and number <= 0 and not controlled:
        hint = "set brokerId of a slave to a number above 0"
        yield _stop(f"a SLAVE with brokerId {number}", hint, "brokerRole", "brokerId")


def _addresses(facts: Facts) -> Iterator[Danger]:
    """Source: BrokerStartup#createBrokerController, RemotingUtil#string2SocketAddress, NettyRemotingServer."""
    servers = facts.settings[BROKER, "namesrvAddr"]
    wrong = None if servers is None else unreadable_server(str(servers))
    if wrong is not None:
        hint = f"write host:port;host:port, without blanks; {VALUE_ALONE}"
        yield _stop(f"namesrvAddr: {shown(wrong)} is not a host:port", hint, "namesrvAddr")
    port = facts.number(SERVER, "listenPort")
    if not 2 <= port < PORT_MAX:
        what = f"listenPort = {port}: the broker needs this port, port + 1 and port − 2"
        yield _stop(what, "set listenPort to 3 to 65534", "listenPort")
    elif port == 2:
        what = "listenPort = 2: the VIP port would be 0, so the system picks one that no client knows"
        yield Danger(("listenPort",), what, "set listenPort to 3 to 65534")


def _places(facts: Facts) -> Iterator[Danger]:
    """Source: BrokerStartup#createBrokerController (logback), DefaultMessageStore (lock), MessageStoreFactory#build."""
    if "\0" in facts.text(STORE, "storePathRootDir"):
        what = "storePathRootDir contains a NUL character: the broker can't make its lock file"
        yield _stop(what, "write the path without it", "storePathRootDir")
    home = facts.settings[BROKER, "rocketmqHome"]
    if "rocketmqHome" in facts.written and (home == "" or "rocketmqHome" in facts.misread):
        what = f"rocketmqHome = {shown(str(home))}: the broker finds no conf/logback_broker.xml there"
        yield _stop(what, f"set rocketmqHome to the installation's directory; {VALUE_ALONE}", "rocketmqHome")
    classes = facts.text(BROKER, "messageStorePlugIn")
    wrong = first_wrong(classes, ",", _CLASS.fullmatch)
    if classes.strip() and wrong is not None:
        hint = f"write class names separated by commas, without blanks; {VALUE_ALONE}"
        yield _stop(f"messageStorePlugIn: {shown(wrong)} is not the name of a class", hint, "messageStorePlugIn")


def _dledger(facts: Facts) -> Iterator[Danger]:
    """Source: DLedgerCommitLog#DLedgerCommitLog, DLedgerConfig."""
    if not facts.store("enableDLegerCommitLog"):
        return
    missing = tuple(key for key in ("dLegerGroup", "dLegerPeers", "dLegerSelfId") if not facts.store(key))
    if missing:
        stops = missing != ("dLegerGroup",)
        what = f"DLedger without {', '.join(missing)}"
        yield Danger(("enableDLegerCommitLog", *missing), what, f"set {' and '.join(missing)}", stops)
    own = facts.text(STORE, "dLegerSelfId")
    if "dLegerPeers" in missing or "dLegerSelfId" in missing:
        return
    peers = dict(part.partition("-")[::2] for part in split(facts.text(STORE, "dLegerPeers"), ";"))
    if not _is_int(own[1:]):
        what = f"dLegerSelfId = {shown(own)} is not a character and a number"
        yield _stop(what, "write it like n0", "dLegerSelfId")
    elif not is_address(peers.get(own, "")):
        what = f"dLegerPeers has no address for {shown(own)} (dLegerSelfId)"
        yield _stop(what, "write n0-host:port;n1-host:port", "dLegerPeers", "dLegerSelfId")


def unreadable_server(text: str) -> str | None:
    """The first part of namesrvAddr that is no host:port; None: each is one."""
    return first_wrong(text, ";", is_address)


def is_address(text: str) -> bool:
    """Whether it is host:port. Source: RemotingUtil#string2SocketAddress."""
    _, colon, port = text.rpartition(":")
    return bool(colon) and _is_int(port, 0, PORT_MAX)


def _is_int(text: str, low: int = INT_MIN, high: int = INT_MAX) -> bool:
    try:
        read_java_int(text, low, high)
    except ValueError:
        return False
    return True


_RULES: tuple[Callable[[Facts], Iterator[Danger]], ...] = (_numbers, _delays, _role, _addresses, _places, _dledger)
