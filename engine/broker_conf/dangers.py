"""What is dangerous in a broker's settings: values that were misread where much hangs on them, and some together.

Sources are named at each rule; the classes are those of 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.broker_conf.delete_when import read_delete_when
from engine.broker_conf.in_force import BROKER, SERVER, STORE, InForce
from engine.broker_conf.values import Kind, Value, read_value, shown
from engine.format.numbers import INT_MAX

_PORT_MAX = 65_535
_FORCED = 85
"""Per cent used above which segments go whatever their age. Source: CleanCommitLogService."""


@dataclass(frozen=True, slots=True)
class Danger:
    """`keys`: that make it, together. `stops`: a broker does not start with it."""

    keys: tuple[str, ...]
    what: str
    hint: str
    stops: bool = False

    def to_json(self) -> dict[str, Any]:
        """One line of "dangers"."""
        return {"keys": list(self.keys), "what": self.what, "hint": self.hint, "starts": not self.stops}


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is in force, what was read before the start overruled some, what is written, and what of it was misread."""

    settings: InForce
    read: InForce
    written: Mapping[str, str]
    misread: Mapping[str, str]

    def text(self, owner: str, key: str) -> str:
        value = self.settings[owner, key]
        return "" if value is None else str(value)

    def number(self, owner: str, key: str) -> int:
        value = self.settings[owner, key]
        assert isinstance(value, int)
        return value

    def store(self, key: str) -> Value:
        return self.settings[STORE, key]


def dangers_of(
    settings: InForce, read: InForce, written: Mapping[str, str], misread: Mapping[str, str]
) -> tuple[Danger, ...]:
    """All of them, those that keep a broker from starting first."""
    facts = _Facts(settings, read, written, misread)
    found = [danger for rule in _RULES for danger in rule(facts)]
    return tuple(sorted(found, key=lambda danger: not danger.stops))


def _retention(facts: _Facts) -> Iterator[Danger]:
    """Source: UtilAll#isItTimeToDo, CleanCommitLogService#isSpaceToDelete."""
    text = facts.text(STORE, "deleteWhen")
    problem = read_delete_when(text).problem(text)
    if problem is not None:
        until = "" if "names no hour" in problem else "; puts are refused at 90 % used"
        yield Danger(("deleteWhen",), problem + until, "write hours alone, like deleteWhen=04 or 04;16")
    kept = facts.number(STORE, "fileReservedTime")
    if kept <= 0:
        yield Danger(
            ("fileReservedTime",), f"fileReservedTime = {kept}: every segment but the last goes at once", "name hours"
        )
    ratio = facts.number(STORE, "diskMaxUsedSpaceRatio")
    if ratio > _FORCED and facts.store("cleanFileForciblyEnable"):
        yield Danger(
            ("diskMaxUsedSpaceRatio",),
            f"diskMaxUsedSpaceRatio = {ratio}: above {_FORCED} % used segments go whatever their age, before any that "
            "has expired does for want of space",
            f"a value below {_FORCED}",
        )


def _role(facts: _Facts) -> Iterator[Danger]:
    """Source: BrokerStartup#createBrokerController."""
    if "brokerRole" in facts.misread:
        yield Danger(
            ("brokerRole",),
            f"brokerRole = {shown(facts.misread['brokerRole'])} can't be read: the broker is an ASYNC_MASTER, "
            "and a second one of its name if it was to be a slave",
            "ASYNC_MASTER, SYNC_MASTER or SLAVE, and nothing behind it",
        )
    number = facts.number(BROKER, "brokerId")
    if facts.store("brokerRole") == "SLAVE" and not facts.store("enableDLegerCommitLog") and number <= 0:
        yield Danger(
            ("brokerRole", "brokerId"), f"a SLAVE with brokerId {number}", "give a slave a number above 0", stops=True
        )
    if facts.store("enableDLegerCommitLog"):
        missing = [key for key in ("dLegerGroup", "dLegerPeers", "dLegerSelfId") if not facts.store(key)]
        if missing:
            yield Danger(
                ("enableDLegerCommitLog", *missing), f"DLedger without {', '.join(missing)}", "name them", stops=True
            )


def _durability(facts: _Facts) -> Iterator[Danger]:
    """Source: CommitLog, MessageStoreConfig#isTransientStorePoolEnable."""
    if "flushDiskType" in facts.misread:
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
    if not facts.store("checkCRCOnRecover"):
        yield Danger(("checkCRCOnRecover",), "recovery takes damaged bodies for sound ones", "leave it at true")


def _addresses(facts: _Facts) -> Iterator[Danger]:
    """Source: BrokerStartup#createBrokerController, RemotingUtil#string2SocketAddress, NettyRemotingServer."""
    servers = facts.settings[BROKER, "namesrvAddr"]
    wrong = None if servers is None else unreadable_server(str(servers))
    if wrong is not None:
        yield Danger(
            ("namesrvAddr",),
            f"namesrvAddr: {shown(wrong)} is no address",
            "host:port;host:port, without blanks, and nothing behind it",
            stops=True,
        )
    port = facts.number(SERVER, "listenPort")
    if not 2 < port < _PORT_MAX:
        yield Danger(("listenPort",), f"listenPort = {port}: it, port + 1 and port − 2 are needed", "3 to 65534", True)
    for key in ("brokerIP1", "brokerIP2"):
        if key in facts.misread:
            yield Danger((key,), f"{key} = {shown(facts.misread[key])}: no client finds the broker there", "an address")
    if "aclEnable" in facts.misread:
        yield Danger(
            ("aclEnable",),
            f"aclEnable = {shown(facts.misread['aclEnable'])} is taken for false: anybody may do anything",
            "true, and nothing behind it",
        )


def _paths(facts: _Facts) -> Iterator[Danger]:
    """Source: CommitLog#CommitLog, MultiPathMappedFileQueue."""
    logs = facts.text(STORE, "storePathCommitLog")
    if facts.store("readOnlyCommitLogStorePaths") and "," not in logs:
        yield Danger(
            ("readOnlyCommitLogStorePaths", "storePathCommitLog"),
            "readOnlyCommitLogStorePaths is only looked at where storePathCommitLog names several directories: those "
            "segments are not there for the broker",
            "end storePathCommitLog with a comma",
        )
    for key in ("storePathRootDir", "storePathCommitLog"):
        if facts.store(key) == "":
            yield Danger((key,), f"{key} is empty: the broker makes its files at /", "a path, or no such line")
    for key in ("storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths"):
        parts = str(facts.store(key) or "").split(",") if key != "storePathRootDir" else [facts.text(STORE, key)]
        if key in facts.misread:
            yield Danger(
                (key,),
                f"{key} = {shown(facts.misread[key])} is taken as it stands: "
                "the broker starts with another, empty store",
                "a path, and nothing behind it",
            )
        elif len(parts) > 1 and any(part != part.strip() for part in parts):
            yield Danger((key,), f"{key}: a directory whose name begins or ends with a blank", "commas without blanks")


def _sizes(facts: _Facts) -> Iterator[Danger]:
    """Source: MappedFile, IndexFile, CommitLog.DefaultAppendMessageCallback (END_FILE_MIN_BLANK_LENGTH)."""
    segment = facts.number(STORE, "mappedFileSizeCommitLog")
    lowest = {"mappedFileSizeCommitLog": 4096, "mappedFileSizeConsumeQueue": 20, "maxHashSlotNum": 1, "maxIndexNum": 2}
    for key, least in lowest.items():
        size = facts.number(STORE, key)
        if not least <= size <= INT_MAX:
            yield Danger((key,), f"{key} = {size}: no store can have it", f"at least {least}", stops=size <= 0)
    largest = facts.number(STORE, "maxMessageSize")
    if segment >= lowest["mappedFileSizeCommitLog"] and not 0 < largest < segment:
        yield Danger(
            ("maxMessageSize", "mappedFileSizeCommitLog"),
            f"maxMessageSize = {largest}, segments of {segment}: a message must fit into a segment",
            "a smaller maxMessageSize" if largest > 0 else "at least 1",
        )
    for key in ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum"):
        if key in facts.misread and _unreadable(facts.misread[key]):
            yield Danger(
                (key,),
                f"{key} = {shown(facts.misread[key])} can't be read: files of another size do not load",
                "a number, and nothing behind it",
            )


def _permission(facts: _Facts) -> Iterator[Danger]:
    """Source: PermName."""
    allowed = facts.number(BROKER, "brokerPermission")
    if allowed & 6 != 6:
        refused = " and ".join(what for bit, what in ((2, "sends"), (4, "pulls")) if not allowed & bit)
        yield Danger(("brokerPermission",), f"brokerPermission = {allowed}: {refused} are refused", "6 for both")


_RULES: tuple[Callable[[_Facts], Iterator[Danger]], ...] = (
    _retention,
    _role,
    _durability,
    _addresses,
    _paths,
    _sizes,
    _permission,
)


def unreadable_server(text: str) -> str | None:
    """The first part of namesrvAddr that is no host:port; None: each is one."""
    parts = text.split(";")
    if len(parts) > 1:
        while parts and not parts[-1]:  # as String#split
            parts.pop()
    for part in parts:
        _, colon, port = part.rpartition(":")
        try:
            number = read_value(Kind.INT, port) if colon else -1
        except ValueError:
            return part
        if not isinstance(number, int) or not 0 <= number <= _PORT_MAX:
            return part
    return None


def _unreadable(text: str) -> bool:
    try:
        read_value(Kind.INT, text)
    except ValueError:
        return True
    return False
