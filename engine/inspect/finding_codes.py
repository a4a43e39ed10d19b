"""Every kind of finding, by its stable code: how bad it is, what it says, what mends it.

CHECK.md, "Findings", shows the table; a test holds the two equal.
"""

from __future__ import annotations

import enum

from engine.dataclass import dataclass


class Severity(enum.Enum):
    """Error: messages can't be read, or a start fails or cuts. Warning: it works, but not as it says."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Fix(enum.Enum):
    """What mends a finding, in the order in which it is done (next_step.py says by which command)."""

    BRING = "bring"
    """A person brings or sets something first: a disk, a right, a setting. The code's hint says what."""
    UNDO = "undo"
    """The undo that was interrupted ends."""
    BRIDGE = "bridge"
    """A recovery that bridges."""
    RECOVER = "recover"
    """A recovery."""
    REBUILD = "rebuild"
    """A recovery that reads the whole log."""
    CONFIG = "config"
    """The configuration is made again."""
    ADVISE = "advise"
    """A person decides; the code's hint says what. Messages and queues are not concerned."""
    NOTHING = "nothing"
    """Nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Code:
    """A kind of finding: how bad, what it says (after a count where there are many), what to know, what mends it."""

    severity: Severity
    what: str
    hint: str = ""
    fix: Fix = Fix.ADVISE


_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
_NOTHING = "nothing to do"

CODES: dict[str, Code] = {
    # files
    "newer-store": Code(
        _INFO,
        "part of a RocketMQ 5 store: rstore reads the store and changes it only where that part stays right",
        "its own 5.x broker recovers it when it starts",
        Fix.NOTHING,
    ),
    "newer-part": Code(_INFO, "part of a RocketMQ 5 store, which rstore reads and repairs", _NOTHING, Fix.NOTHING),
    "dledger-store": Code(
        _INFO,
        "the log of a DLedger store: rstore reads the store and never changes it",
        "its own broker recovers it when it starts; restore --from-dledger makes a plain store of it",
        Fix.NOTHING,
    ),
    "file-size": Code(
        _ERROR, "a file has the wrong size or is in the wrong place: a broker does not start", fix=Fix.RECOVER
    ),
    "file-stray": Code(_ERROR, "a stray file: a broker does not start", fix=Fix.RECOVER),
    "file-absent": Code(
        _ERROR,
        "the target of a link is absent: a broker starts without the data in it",
        "mount the disk that the link leads to before a broker starts",
        Fix.BRING,
    ),
    "file-ignored": Code(_INFO, "a stray file that a broker ignores", "it can be moved out of the store", Fix.NOTHING),
    "not-closed": Code(_WARNING, "the store was not closed cleanly: its abort file exists", fix=Fix.RECOVER),
    "repair-unfinished": Code(_WARNING, "a repair was interrupted", "a recovery finishes it", Fix.RECOVER),
    "undo-unfinished": Code(_WARNING, "an undo was interrupted", fix=Fix.UNDO),
    "disk-space": Code(
        _INFO,
        "the disk has no space for another segment: puts that need one are refused, messages can be read",
        "free space; what a repair saves can go to another disk: rstore recover --salvage-dir DIR",
        Fix.NOTHING,
    ),
    # the log
    "log-misplaced": Code(
        _ERROR,
        "the records of a segment name another offset than its file name: its messages are in the wrong place",
        fix=Fix.RECOVER,
    ),
    "log-surplus": Code(
        _ERROR,
        "the records of a file have no place in the log",
        "the file is kept in quarantine/",
        Fix.BRIDGE,
    ),
    "log-missing": Code(
        _ERROR,
        "there are consume queues but no commit log",
        "mount its disk before a broker starts; if the log is lost for good: rstore recover --yes-the-log-is-gone",
        Fix.BRING,
    ),
    "path-missing": Code(
        _ERROR,
        "a directory of the commit log is missing",
        "mount its disk before a broker starts; if it never held a segment, or its segments are lost for good, "
        "create it (mkdir)",
        Fix.BRING,
    ),
    "path-unnamed": Code(
        _ERROR,
        "a missing segment is in a directory that no setting names",
        "name all directories of the log (storePathCommitLog in the broker.conf that -c gives), or move the file back "
        "into the log's directory",
        Fix.BRING,
    ),
    "log-gap": Code(
        _ERROR,
        "segments of the log are missing",
        "if you still have the missing files, put them back first",
        Fix.BRIDGE,
    ),
    "log-damage": Code(_ERROR, "damage in the middle of the log, with sound records after it", fix=Fix.BRIDGE),
    "entry-chain": Code(
        _ERROR,
        "the index or the term of a DLedger entry does not follow that of the entry before it",
        "its group ends the log there when it recovers; the messages can be read",
    ),
    "entry-index": Code(
        _WARNING,
        "a unit of DLedger's index does not match its entry",
        "its group makes the index anew from the entries when it starts, for the last three files at least",
    ),
    "entry-index-missing": Code(
        _INFO, "DLedger's index is missing", "its group makes it anew from the entries when it starts", Fix.NOTHING
    ),
    "entry-uncommitted": Code(
        _INFO,
        "a DLedger entry after the last committed one that the member noted",
        "it notes it every 3 s: the group may have committed more, or may drop them at its next start",
        Fix.NOTHING,
    ),
    "log-tail": Code(_WARNING, "bytes after the log end contain no sound record", fix=Fix.RECOVER),
    "log-stale": Code(
        _WARNING,
        "a stale record after the log end, left by an earlier cut",
        "a broker would read it as a message at its next start; a recovery removes and saves it",
        Fix.RECOVER,
    ),
    "record-displaced": Code(
        _WARNING, "a displaced record: its physicalOffset is not its position in the log", fix=Fix.REBUILD
    ),
    "record-suspect": Code(
        _WARNING,
        "a suspect record: its body is sound, but no broker writes such a header, topic or properties",
        "it stays readable. Keep its queue and index: they may be the only evidence of what it contained, and reindex "
        "replaces them",
        Fix.ADVISE,
    ),
    "record-unusual": Code(
        _INFO,
        "an unusual record: its header or properties are damaged, or an unusual client sent them",
        "nothing to do: its queue unit and index entries match it",
        Fix.NOTHING,
    ),
    "record-crc": Code(
        _ERROR,
        "property CRC mismatch: the header, topic or properties of a record are not as its broker wrote them",
        "it stays readable; a slave or a backup may hold it undamaged",
        Fix.ADVISE,
    ),
    "record-crc-missing": Code(
        _ERROR,
        "a record without a property CRC, which forceVerifyPropCRC=true demands: a broker takes it for damage",
        "a broker that recovers such a store ends the log there; set forceVerifyPropCRC=false until these records "
        "have expired",
        Fix.ADVISE,
    ),
    "log-accepted": Code(_INFO, "a lost range of the log that an earlier repair accepted", _NOTHING, Fix.NOTHING),
    "log-bridged": Code(
        _INFO,
        "a damaged range of the log, bridged by a repair",
        "what it contained: rstore salvage list, rstore salvage show",
        Fix.NOTHING,
    ),
    # consume queues
    "queue-empty": Code(_WARNING, "a queue file after a gap holds no unit", fix=Fix.RECOVER),
    "queue-gap": Code(_ERROR, "files in the middle of a queue are missing", fix=Fix.RECOVER),
    "unit-missing": Code(_ERROR, "a message has no unit at its queue offset: consumers don't get it", fix=Fix.REBUILD),
    "unit-deleted": Code(
        _INFO,
        "a message of a topic that was deleted (and perhaps created again): consumers don't get it",
        _NOTHING,
        Fix.NOTHING,
    ),
    "unit-invalid": Code(_ERROR, "an invalid unit between valid units: a broker ends the queue there", fix=Fix.REBUILD),
    "unit-orphaned": Code(
        _ERROR, "an orphaned unit: no sound record of its size is at its physical offset", fix=Fix.REBUILD
    ),
    "unit-foreign": Code(_WARNING, "a foreign unit: its record names another queue or queue offset", fix=Fix.REBUILD),
    "unit-tags": Code(
        _ERROR, "the tags code of a unit does not match its record: tag filters skip the message", fix=Fix.REBUILD
    ),
    "unit-time": Code(
        _ERROR,
        "the store time in a unit does not match its record: a search by time finds the wrong message",
        fix=Fix.REBUILD,
    ),
    "rocksdb-damage": Code(
        _ERROR,
        "a database with consume queues is damaged: its broker may not start, or not find messages",
        "rstore recover sets it aside: its 5.x broker then makes the queues anew from the log when it starts",
        Fix.BRING,
    ),
    "rocksdb-torn": Code(
        _WARNING,
        "the log of a RocksDB database ends early: its broker reads what is before, and starts",
        "nothing to do: what came after it is lost, such as the latest offsets of groups",
    ),
    "rocksdb-table": Code(
        _WARNING,
        "a table that the manifest of its database does not name: RocksDB deletes it at the next start",
        "if units are missing, move the database away: its 5.x broker makes the queues anew from the log",
    ),
    "rocksdb-entry": Code(
        _WARNING,
        "a key or value in a database that RocketMQ does not write: a broker passes it over",
        "nothing to do",
    ),
    "queue-end": Code(
        _ERROR,
        "the last message that a database names for a queue has no unit: a broker gives out later queue offsets",
        "its 5.x broker makes the queues anew from the log when it starts without that directory",
    ),
    "unit-twice": Code(
        _ERROR,
        "the unit of a queue in RocksDB differs from the one in its file: consumers get what the broker reads",
        "its 5.x broker makes the queues in RocksDB anew from the log when it starts without that directory",
    ),
    "unit-witness": Code(
        _WARNING,
        "the tags code of a unit does not match its record, and the record is suspect",
        "keep the queue: it may be the only evidence of what the record contained, and reindex replaces it",
        Fix.ADVISE,
    ),
    "unit-delivery-time": Code(
        _ERROR,
        "the unit of a delayed message contains no delivery time: the message is delivered at once",
        fix=Fix.REBUILD,
    ),
    "unit-delivery-other": Code(
        _WARNING,
        "a delivery time does not match messageDelayLevel",
        "give the broker's own messageDelayLevel with -c broker.conf first",
        Fix.REBUILD,
    ),
    "unit-lost": Code(_INFO, "a unit points into a lost range of the log", "its message is lost", Fix.NOTHING),
    "unit-repeated": Code(
        _INFO, "a unit repeats an adjacent unit: a repair filled the place of a lost message", _NOTHING, Fix.NOTHING
    ),
    "unit-surplus": Code(
        _WARNING,
        "a unit repeats the last message of its queue, and no message was lost there: consumers get it twice",
        fix=Fix.REBUILD,
    ),
    "ext-missing": Code(_ERROR, "a unit names an extension unit that does not exist", fix=Fix.REBUILD),
    "ext-wrong": Code(_ERROR, "an extension unit does not match its record (tags code or store time)", fix=Fix.REBUILD),
    # index
    "index-header": Code(_ERROR, "the header of an index file does not match its entries", fix=Fix.REBUILD),
    "index-entry": Code(_ERROR, "an invalid index entry", fix=Fix.REBUILD),
    "index-link": Code(
        _ERROR, "an index entry names the wrong previous entry: keys after it are not found", fix=Fix.REBUILD
    ),
    "index-slot": Code(_ERROR, "a slot does not name its newest entry: keys are not found", fix=Fix.REBUILD),
    "index-order": Code(_ERROR, "an index file starts before the end of the previous one", fix=Fix.REBUILD),
    "index-orphaned": Code(_ERROR, "an orphaned index entry: no record is at its physical offset", fix=Fix.REBUILD),
    "index-key": Code(_ERROR, "the key hash of an index entry matches no key of its record", fix=Fix.REBUILD),
    "index-witness": Code(
        _WARNING,
        "an index entry or key does not match its record, and the record is suspect",
        "keep the index: it may be the only evidence of what the record contained, and reindex replaces it",
        Fix.ADVISE,
    ),
    "index-time": Code(
        _ERROR,
        "the time of an index entry does not match its record: queries by time skip the message",
        fix=Fix.REBUILD,
    ),
    "index-missing": Code(
        _ERROR,
        "a key of a message is not in the index: queries don't find it",
        "a broker with messageIndexEnable=false writes no index: if so, give its settings with -c broker.conf",
        Fix.REBUILD,
    ),
    "index-twice": Code(
        _INFO, "a key is in the index twice, as a broker's own recovery leaves it", _NOTHING, Fix.NOTHING
    ),
    "index-lost": Code(_INFO, "an index entry points into a lost range of the log", _NOTHING, Fix.NOTHING),
    # what RocketMQ 5 keeps
    "timer-damage": Code(
        _ERROR, "damage in the timer log of RocketMQ 5: messages that wait are not delivered", fix=Fix.RECOVER
    ),
    "timer-orphaned": Code(
        _ERROR,
        "a unit of the timer log waits, and no sound timer message is where it points: what is put there later may be "
        "delivered in its place",
        fix=Fix.RECOVER,
    ),
    "timer-foreign": Code(
        _ERROR, "a unit of the timer log does not match its message: it is delivered too early", fix=Fix.RECOVER
    ),
    "timer-chain": Code(
        _ERROR, "a unit of the timer log does not name the one before it of its due time", fix=Fix.RECOVER
    ),
    "timer-slot": Code(
        _ERROR, "the timer wheel does not match the timer log: messages that wait are not delivered", fix=Fix.RECOVER
    ),
    "timer-check": Code(
        _ERROR,
        "config/timercheck does not tell how far the timer is: messages are delivered again, or not at all",
        fix=Fix.RECOVER,
    ),
    "compaction-file": Code(
        _ERROR,
        "a file of a compacted topic of RocketMQ 5 is missing or left over: a broker does not start",
        "with the broker stopped, move the directories of that queue in compactionLog and compactionCq away together: "
        "the broker starts, and its log keeps what it still has of the topic (rstore dump compaction shows the rest)",
    ),
    "compaction-damage": Code(
        _ERROR,
        "damage in the messages of a compacted topic of RocketMQ 5: its broker does not return them",
        "what is sound: rstore dump compaction",
    ),
    "compaction-unit": Code(
        _ERROR,
        "a unit of a compacted topic of RocketMQ 5 does not match its message",
        "what is sound: rstore dump compaction",
    ),
    "compaction-position": Code(
        _WARNING,
        "compaction/position-checkpoint does not tell how far topics are compacted: too much or nothing is compacted",
        "with the broker stopped, move this file away: the broker then compacts all of these topics again",
    ),
    "compaction-left": Code(
        _INFO, "files of a compaction that was interrupted: a broker passes them over", _NOTHING, Fix.NOTHING
    ),
    "epoch-bad": Code(
        _ERROR,
        "neither the epoch file nor its .bak can be read: its broker knows no epoch",
        "its broker fetches them from its master, where it is a slave",
    ),
    "epoch-bak": Code(_WARNING, "an epoch file, or its .bak, can't be read", fix=Fix.RECOVER),
    "epoch-ahead": Code(
        _ERROR, "an epoch begins after the log end: its broker and others take this log for longer", fix=Fix.RECOVER
    ),
    "epoch-order": Code(
        _ERROR,
        "epochs do not ascend",
        "nothing in the store tells which of them is right: the controller and the other brokers know the epochs",
    ),
    "checkpoint-offset": Code(
        _WARNING,
        "a physical offset in the checkpoint of RocketMQ 5 is after the log end",
        fix=Fix.RECOVER,
    ),
    # checkpoint and config
    "checkpoint-missing": Code(
        _WARNING, "the checkpoint is missing or too short: a broker reads its times as 0", fix=Fix.RECOVER
    ),
    "checkpoint-ahead": Code(
        _WARNING,
        "the checkpoint does not belong to this log: a recovery may start too late in the log",
        fix=Fix.REBUILD,
    ),
    "config-bad": Code(_ERROR, "neither a configuration file nor its .bak can be read", fix=Fix.CONFIG),
    "config-bak": Code(_WARNING, "a configuration file can't be read: a broker reads its .bak instead", fix=Fix.CONFIG),
    "config-bak-bad": Code(
        _INFO,
        "the .bak of a configuration file can't be read",
        "nothing to do as long as the file itself can be read",
        Fix.NOTHING,
    ),
    "config-value": Code(_ERROR, "a configuration file contains an invalid value", fix=Fix.CONFIG),
    "config-not-strict": Code(
        _INFO, "a configuration file is not strict JSON, but a broker reads it", _NOTHING, Fix.NOTHING
    ),
    "config-missing": Code(_WARNING, "a configuration file is missing: a broker starts without it", fix=Fix.CONFIG),
    "config-absent": Code(
        _INFO,
        "this configuration file does not exist; it may never have been written",
        "if it was lost: rstore rebuild-config",
        Fix.NOTHING,
    ),
    "topic-hidden": Code(
        _WARNING,
        "perm or readQueueNums of a topic hides messages from consumers",
        "rstore rebuild-config --topic NAME makes them readable",
    ),
    "group-disabled": Code(
        _INFO,
        "a consumer group is not allowed to consume",
        "if this is not intended: rstore rebuild-config --group NAME, or mqadmin updateSubGroup -s true",
        Fix.NOTHING,
    ),
    "consumer-above": Code(
        _WARNING,
        "a consumer offset is above the maximum of its queue",
        "set it with rstore offsets set, or with mqadmin resetOffsetByTime on a running broker",
    ),
    "consumer-queue": Code(_INFO, "a consumer offset names a queue that does not exist", _NOTHING, Fix.NOTHING),
    "delay-range": Code(
        _WARNING, "the offset of a delay level is outside of its queue", "a broker corrects it when it starts"
    ),
    "topic-unknown": Code(
        _INFO,
        "topics in the log have no configuration",
        "rstore rebuild-config --topic NAME, if they are wanted",
        Fix.NOTHING,
    ),
    "topic-unused": Code(_INFO, "topics have a configuration, but no queues", _NOTHING, Fix.NOTHING),
    # the check itself
    "ends-not-checked": Code(
        _INFO,
        "a running process has the store open: the ends of log, queues and index were not checked",
        "stop it to check everything",
        Fix.NOTHING,
    ),
    "time-box": Code(
        _INFO,
        "the time limit ended the check before it had read everything",
        "rstore check without --time-box",
        Fix.NOTHING,
    ),
}
"""Every code that check reports. Stable: scripts go by them."""

FILE_CODES: tuple[str, ...] = (
    *("newer-store", "newer-part", "dledger-store", "rocksdb-damage", "rocksdb-torn"),
    *("file-size", "file-stray", "file-absent", "file-ignored", "queue-empty"),
    *("not-closed", "repair-unfinished", "undo-unfinished", "disk-space"),
)
"""Findings that names and lengths of files show: `status`, `doctor` and `check` have them."""
CONFIG_CODES: tuple[str, ...] = (
    *("config-bad", "config-bak", "config-bak-bad", "config-value", "config-not-strict"),
    *("config-missing", "config-absent", "topic-hidden", "group-disabled"),
)
"""Likewise those that the tables of config/ show."""
