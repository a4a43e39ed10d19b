"""What is dangerous in a broker's settings: values that were misread where much hangs on them, and some together.

Sources are named at each rule; the classes are those of 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from engine.broker_conf.delete_when import read_delete_when
from engine.broker_conf.disk_levels import CLEAN_FORCIBLY, WARNING_LEVEL
from engine.broker_conf.facts import Danger, Facts
from engine.broker_conf.in_force import BROKER, STORE, InForce
from engine.broker_conf.paths import path_dangers
from engine.broker_conf.start_rules import is_address, start_dangers
from engine.broker_conf.values import Kind, read_value, shown
from engine.format.numbers import INT_MAX

_LEAST_ADDRESS = 6
"""Characters below which a broker asks its name server for the master. Source: BrokerController#initialize."""


def dangers_of(
    settings: InForce, read: InForce, written: Mapping[str, str], misread: Mapping[str, str]
) -> tuple[Danger, ...]:
    """All of them, those that keep a broker from starting first."""
    facts = Facts(settings, read, written, misread)
    found = [*start_dangers(facts), *(danger for rule in _RULES for danger in rule(facts))]
    return tuple(sorted(found, key=lambda danger: not danger.stops))


def _retention(facts: Facts) -> Iterator[Danger]:
    """Source: UtilAll#isItTimeToDo, CleanCommitLogService#isSpaceToDelete."""
    text = facts.text(STORE, "deleteWhen")
    problem = read_delete_when(text).problem(text)
    if problem is not None:
        until = "" if "names no hour" in problem else f"; puts are refused at {WARNING_LEVEL} % used"
        yield Danger(("deleteWhen",), problem + until, "write hours alone, like deleteWhen=04 or 04;16")
    kept = facts.number(STORE, "fileReservedTime")
    if kept <= 0:
        what = f"fileReservedTime = {kept}: every segment but the last goes with the next deleteWhen"
        yield Danger(("fileReservedTime",), what, "name hours")
    ratio = facts.number(STORE, "diskMaxUsedSpaceRatio")
    if ratio > CLEAN_FORCIBLY and facts.store("cleanFileForciblyEnable"):
        yield Danger(
            ("diskMaxUsedSpaceRatio",),
            f"diskMaxUsedSpaceRatio = {ratio}: above {CLEAN_FORCIBLY} % used segments go whatever their age, before "
            "any that has expired does for want of space",
            f"a value below {CLEAN_FORCIBLY}",
        )


def _role(facts: Facts) -> Iterator[Danger]:
    """Source: BrokerStartup#createBrokerController."""
    if _means_another(facts, "brokerRole", "ASYNC_MASTER"):
        yield Danger(
            ("brokerRole",),
            f"brokerRole = {shown(facts.misread['brokerRole'])} can't be read: the broker is an ASYNC_MASTER, "
            "and a second one of its name if it was to be a slave",
            "ASYNC_MASTER, SYNC_MASTER or SLAVE, and nothing behind it",
        )


def _durability(facts: Facts) -> Iterator[Danger]:
    """Source: CommitLog, MessageStoreConfig#isTransientStorePoolEnable."""
    if _means_another(facts, "flushDiskType", "ASYNC_FLUSH"):
        yield Danger(
            ("flushDiskType",),
            f"flushDiskType = {shown(facts.misread['flushDiskType'])} can't be read: ASYNC_FLUSH is in force, puts are "
            "answered before they are on disk",
            "SYNC_FLUSH or ASYNC_FLUSH, and nothing behind it",
        )
    if facts.written.get("transientStorePoolEnable", "").lower() == "true" and not facts.store(
        "transientStorePoolEnable"
    ):
        yield Danger(
            ("transientStorePoolEnable", "flushDiskType", "brokerRole"),
            "transientStorePoolEnable has no effect with SYNC_FLUSH or on a SLAVE",
            "decide for one of them",
        )
    interval = facts.number(STORE, "flushIntervalCommitLog")
    if interval < 0 and facts.store("flushDiskType") == "ASYNC_FLUSH" and facts.store("flushCommitLogTimed"):
        what = f"flushIntervalCommitLog = {interval}: the log is never flushed but when the broker stops"
        yield Danger(("flushIntervalCommitLog",), what, "at least 0")
    if not facts.store("checkCRCOnRecover"):
        yield Danger(("checkCRCOnRecover",), "recovery takes damaged bodies for sound ones", "leave it at true")


def _addresses(facts: Facts) -> Iterator[Danger]:
    """Source: BrokerOuterAPI#registerBrokerAll, BrokerController#initialize, HAService.HAClient#connectMaster."""
    for key in ("brokerIP1", "brokerIP2"):
        who = "client" if key == "brokerIP1" else "slave"
        if key in facts.misread or facts.written.get(key) == "":
            what = f"{key} = {shown(facts.written[key])}: no {who} finds the broker there"
            yield Danger((key,), what, "an address, and nothing behind it")
    for server in str(facts.settings[BROKER, "namesrvAddr"] or "").split(";"):
        if server != server.strip() and is_address(server):
            what = f"namesrvAddr: {shown(server)} has a blank in its name: the broker never registers there"
            yield Danger(("namesrvAddr",), what, "host:port;host:port, without blanks")
    master = facts.text(STORE, "haMasterAddress")
    if facts.store("brokerRole") == "SLAVE" and len(master) >= _LEAST_ADDRESS and not is_address(master):
        what = f"haMasterAddress = {shown(master)} is no address: the slave never gets a message"
        yield Danger(("haMasterAddress",), what, "host:port, and nothing behind it")
    if _means_another(facts, "aclEnable", "false"):
        yield Danger(
            ("aclEnable",),
            f"aclEnable = {shown(facts.misread['aclEnable'])} is taken for false: anybody may do anything",
            "true, and nothing behind it",
        )


def _sizes(facts: Facts) -> Iterator[Danger]:
    """Source: MappedFile, IndexFile, CommitLog.DefaultAppendMessageCallback (END_FILE_MIN_BLANK_LENGTH)."""
    segment = facts.number(STORE, "mappedFileSizeCommitLog")
    lowest = {"mappedFileSizeCommitLog": 4096, "mappedFileSizeConsumeQueue": 20, "maxHashSlotNum": 1, "maxIndexNum": 2}
    for key, least in lowest.items():
        size = facts.number(STORE, key)
        if not least <= size <= INT_MAX:
            what = f"{key} = {size}: no store can have it: existing files do not load, and no new one is made"
            yield Danger((key,), what, f"at least {least}")
    largest = facts.number(STORE, "maxMessageSize")
    if segment >= lowest["mappedFileSizeCommitLog"] and not 0 < largest < segment:
        yield Danger(
            ("maxMessageSize", "mappedFileSizeCommitLog"),
            f"maxMessageSize = {largest}, segments of {segment}: a message must fit into a segment",
            "a smaller maxMessageSize" if largest > 0 else "at least 1",
        )
    for key in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum"):
        if _means_another(facts, key, str(facts.store(key))) and _unreadable(facts.misread[key]):
            yield Danger(
                (key,),
                f"{key} = {shown(facts.misread[key])} can't be read: files of another size do not load",
                "a number, and nothing behind it",
            )


def _permission(facts: Facts) -> Iterator[Danger]:
    """Source: PermName."""
    allowed = facts.number(BROKER, "brokerPermission")
    if allowed & 6 != 6:
        refused = " and ".join(what for bit, what in ((2, "sends"), (4, "pulls")) if not allowed & bit)
        yield Danger(("brokerPermission",), f"brokerPermission = {allowed}: {refused} are refused", "6 for both")


_RULES: tuple[Callable[[Facts], Iterator[Danger]], ...] = (
    _retention,
    _role,
    _durability,
    _addresses,
    path_dangers,
    _sizes,
    _permission,
)


def _means_another(facts: Facts, key: str, in_force: str) -> bool:
    """Whether it was misread and its first word is not what is in force for that reason."""
    words = facts.misread.get(key, "").split()
    return key in facts.misread and (words[:1] or [""])[0].lower() != in_force.lower()


def _unreadable(text: str) -> bool:
    try:
        read_value(Kind.INT, text)
    except ValueError:
        return True
    return False
