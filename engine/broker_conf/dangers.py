"""What is dangerous in a broker's settings: values that were misread where much hangs on them, and some together.

Sources are named at each rule; the classes are those of 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from engine.broker_conf.delete_when import read_delete_when
from engine.broker_conf.disk_levels import CLEAN_FORCIBLY, WARNING_LEVEL
from engine.broker_conf.facts import VALUE_ALONE, Danger, Facts
from engine.broker_conf.in_force import BROKER, STORE, InForce
from engine.broker_conf.paths import path_dangers
from engine.broker_conf.replication import replication_dangers
from engine.broker_conf.start_rules import is_address, start_dangers
from engine.broker_conf.values import ValueKind, read_value, shown
from engine.format.numbers import INT_MAX

_LEAST_ADDRESS = 6
"""Characters below which a broker asks its name server for the master. Source: BrokerController#initialize."""


def dangers_of(
    settings: InForce, read: InForce, written: Mapping[str, str], misread: Mapping[str, str]
) -> tuple[Danger, ...]:
    """All of them, those that keep a broker from starting first."""
    facts = Facts(settings, read, written, misread)
    dangers = [*start_dangers(facts), *(danger for rule in _RULES for danger in rule(facts))]
    return tuple(sorted(dangers, key=lambda danger: not danger.stops))


def _retention(facts: Facts) -> Iterator[Danger]:
    """Source: UtilAll#isItTimeToDo, CleanCommitLogService#isSpaceToDelete."""
    text = facts.text(STORE, "deleteWhen")
    problem = read_delete_when(text).problem(text)
    if problem is not None:
        until = "" if "not an hour of the day" in problem else f"; puts are refused at {WARNING_LEVEL} % disk usage"
        yield Danger(("deleteWhen",), problem + until, "write only hours, like deleteWhen=04 or deleteWhen=04;16")
    kept = facts.number(STORE, "fileReservedTime")
    if kept <= 0:
        what = (
            f"fileReservedTime = {kept}: the broker deletes every segment but the last at the next hour of deleteWhen"
        )
        yield Danger(("fileReservedTime",), what, "set fileReservedTime to a number of hours above 0")
    ratio = facts.number(STORE, "diskMaxUsedSpaceRatio")
    if ratio > CLEAN_FORCIBLY and facts.store("cleanFileForciblyEnable"):
        yield Danger(
            ("diskMaxUsedSpaceRatio",),
            f"diskMaxUsedSpaceRatio = {ratio}: above {CLEAN_FORCIBLY} % disk usage the broker deletes "
            "segments of any age, before it deletes expired ones for lack of space",
            f"set diskMaxUsedSpaceRatio below {CLEAN_FORCIBLY}",
        )


def _role(facts: Facts) -> Iterator[Danger]:
    """Source: BrokerStartup#createBrokerController."""
    if _means_another(facts, "brokerRole", "ASYNC_MASTER"):
        yield Danger(
            ("brokerRole",),
            f"brokerRole = {shown(facts.misread['brokerRole'])} is invalid: the broker runs as an ASYNC_MASTER; "
            "where a slave was meant, two masters have the same name",
            f"set brokerRole to ASYNC_MASTER, SYNC_MASTER or SLAVE; {VALUE_ALONE}",
        )


def _durability(facts: Facts) -> Iterator[Danger]:
    """Source: CommitLog, MessageStoreConfig#isTransientStorePoolEnable."""
    if _means_another(facts, "flushDiskType", "ASYNC_FLUSH"):
        yield Danger(
            ("flushDiskType",),
            f"flushDiskType = {shown(facts.misread['flushDiskType'])} is invalid: ASYNC_FLUSH is in force, puts are "
            "answered before they are on disk",
            f"set flushDiskType to SYNC_FLUSH or ASYNC_FLUSH; {VALUE_ALONE}",
        )
    if facts.written.get("transientStorePoolEnable", "").lower() == "true" and not facts.store(
        "transientStorePoolEnable"
    ):
        yield Danger(
            ("transientStorePoolEnable", "flushDiskType", "brokerRole"),
            "transientStorePoolEnable has no effect with SYNC_FLUSH or on a SLAVE",
            "remove transientStorePoolEnable, or use ASYNC_FLUSH on a master",
        )
    interval = facts.number(STORE, "flushIntervalCommitLog")
    if interval < 0 and facts.store("flushDiskType") == "ASYNC_FLUSH" and facts.store("flushCommitLogTimed"):
        what = f"flushIntervalCommitLog = {interval}: the broker flushes the log only when it stops"
        yield Danger(("flushIntervalCommitLog",), what, "set flushIntervalCommitLog to at least 0")
    if not facts.store("checkCRCOnRecover"):
        what = "checkCRCOnRecover = false: recovery does not notice damaged bodies"
        yield Danger(("checkCRCOnRecover",), what, "remove the line: the default is true")


def _addresses(facts: Facts) -> Iterator[Danger]:
    """Source: BrokerOuterAPI#registerBrokerAll, BrokerController#initialize, HAService.HAClient#connectMaster."""
    for key in ("brokerIP1", "brokerIP2"):
        who = "client" if key == "brokerIP1" else "slave"
        if key in facts.misread or facts.written.get(key) == "":
            what = f"{key} = {shown(facts.written[key])} is not an address: no {who} can connect to the broker"
            yield Danger((key,), what, f"set {key} to an address; {VALUE_ALONE}")
    for server in str(facts.settings[BROKER, "namesrvAddr"] or "").split(";"):
        if server != server.strip() and is_address(server):
            what = f"namesrvAddr: {shown(server)} contains a blank: the broker never registers there"
            yield Danger(("namesrvAddr",), what, "write host:port;host:port, without blanks")
    master = facts.text(STORE, "haMasterAddress")
    if facts.store("brokerRole") == "SLAVE" and len(master) >= _LEAST_ADDRESS and not is_address(master):
        what = f"haMasterAddress = {shown(master)} is not a host:port: the slave never gets a message"
        yield Danger(("haMasterAddress",), what, f"set haMasterAddress to host:port; {VALUE_ALONE}")
    if _means_another(facts, "aclEnable", "false"):
        yield Danger(
            ("aclEnable",),
            f"aclEnable = {shown(facts.misread['aclEnable'])} means false: every client may do everything",
            f"set aclEnable to true; {VALUE_ALONE}",
        )


def _sizes(facts: Facts) -> Iterator[Danger]:
    """Source: MappedFile, IndexFile, CommitLog.DefaultAppendMessageCallback (END_FILE_MIN_BLANK_LENGTH)."""
    segment = facts.number(STORE, "mappedFileSizeCommitLog")
    lowest = {"mappedFileSizeCommitLog": 4096, "mappedFileSizeConsumeQueue": 20, "maxHashSlotNum": 1, "maxIndexNum": 2}
    for key, least in lowest.items():
        size = facts.number(STORE, key)
        if not least <= size <= INT_MAX:
            what = f"{key} = {size} is invalid: the broker can't load files of that size, or make any"
            yield Danger((key,), what, f"set {key} to at least {least}")
    largest = facts.number(STORE, "maxMessageSize")
    if segment >= lowest["mappedFileSizeCommitLog"] and not 0 < largest < segment:
        yield Danger(
            ("maxMessageSize", "mappedFileSizeCommitLog"),
            f"maxMessageSize = {largest}, mappedFileSizeCommitLog = {segment}: a message must fit into a segment",
            "set maxMessageSize " + ("to less than mappedFileSizeCommitLog" if largest > 0 else "to at least 1"),
        )
    for key in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum"):
        if _means_another(facts, key, str(facts.store(key))) and _unreadable(facts.misread[key]):
            yield Danger(
                (key,),
                f"{key} = {shown(facts.misread[key])} is invalid, and the default is in force: the broker can't load "
                "files of another size",
                f"set {key} to a number; {VALUE_ALONE}",
            )


def _permission(facts: Facts) -> Iterator[Danger]:
    """Source: PermName."""
    allowed = facts.number(BROKER, "brokerPermission")
    if allowed & 6 != 6:
        refused = " and ".join(what for bit, what in ((2, "sends"), (4, "pulls")) if not allowed & bit)
        what = f"brokerPermission = {allowed}: {refused} are refused"
        yield Danger(("brokerPermission",), what, "set brokerPermission to 6 to allow sends and pulls")


_RULES: tuple[Callable[[Facts], Iterator[Danger]], ...] = (
    _retention,
    _role,
    _durability,
    _addresses,
    replication_dangers,
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
        read_value(ValueKind.INT, text)
    except ValueError:
        return True
    return False
