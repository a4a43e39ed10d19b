"""What a release makes of what another one left in a store: one table, beside that of how releases start (`rules`).

`since` is the first release (of `rules.TABLE`) that reads the thing; one before it does what `what` says. Where it is
None, the finding depends on more, and `upgrade` has the reason at hand.

Sources: the tags rocketmq-all-4.9.8 to 5.3.3, the jars of 5.4.0 and 5.5.0; what 4.9.8 does with stores of 5.5.0 is
compared with its own message store and broker (tests/compat/test_upgrade.py).
"""

from __future__ import annotations

from engine.dataclass import dataclass
from engine.inspect.finding_codes import Code, Fix, Severity
from engine.repair.start.rules import RELEASES

_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
_5, _5_3_3, _5_4, _5_5 = "5.3.1", "5.3.3", "5.4.0", "5.5.0"
_DRAIN = "let consumers read them first, with the release that reads them"


@dataclass(frozen=True, slots=True)
class UpgradeRule:
    """A finding of `doctor --upgrade-to`. `since`: see the module."""

    severity: Severity
    what: str
    hint: str
    since: str | None = None

    def applies(self, release: str) -> bool:
        """Whether this release does not read it."""
        return self.since is not None and RELEASES.index(release) < RELEASES.index(self.since)


RULES: dict[str, UpgradeRule] = {
    # the start
    "start-fails": UpgradeRule(
        _ERROR, "a broker of this release does not start on the store", "rstore doctor tells what is in its way"
    ),
    "start-loses": UpgradeRule(
        _ERROR,
        "a start of this release loses data",
        "where the store was not closed, or is damaged, repair it first: rstore recover",
    ),
    "start-not-computed": UpgradeRule(
        _INFO, "what the start does to log and queues is not computed", "rstore check reads log and queues"
    ),
    # records
    "record-v2": UpgradeRule(
        _ERROR,
        "records with a topic of more than 127 bytes (V2), which this release takes for damage: a recovery that reads "
        "one ends the log there, and dispatch passes over it",
        "keep the release until retention has deleted them; rstore dump commitlog --json saves them as messages",
        _5,
    ),
    "record-crc-missing": UpgradeRule(
        _ERROR,
        "records without a right property CRC, which forceVerifyPropCRC=true demands: a recovery ends the log at the "
        "first that it reads",
        "set forceVerifyPropCRC=false, at least until retention has deleted them",
    ),
    "record-crc": UpgradeRule(
        _INFO,
        "records with a property CRC, which this release neither checks nor writes: consumers see a property __CRC32#",
        "on the way back to a newer release leave forceVerifyPropCRC off: the records in between have none",
        _5,
    ),
    # what is delivered later
    "timer-waits": UpgradeRule(
        _ERROR,
        "timer messages that wait: this release never delivers them",
        "wait until they are delivered: rstore dump timerlog --due lists them, with their times",
        _5,
    ),
    "timer-snapshot": UpgradeRule(
        _WARNING,
        "a snapshot of the timer wheel, which this release does not load: it takes timerwheel, which may be older",
        "start the newer release with timerWheelSnapshotFlush=false first, and close it cleanly",
        _5_4,
    ),
    "pop-waits": UpgradeRule(
        _ERROR,
        "pops that wait for an acknowledgement: this release does not give their messages again",
        "let consumers that pop acknowledge what they have, stop them, and wait until invisible times are over",
        _5,
    ),
    "pop-store": UpgradeRule(
        _ERROR,
        "pops that wait are in RocksDB (kvStore/): this release does not give their messages again",
        "let consumers that pop acknowledge what they have, stop them, and wait until invisible times are over",
        _5_3_3,
    ),
    "pop-order": UpgradeRule(
        _WARNING,
        "groups that pop in order have messages out, which this release does not know of",
        "stop these consumers before: their messages may come twice, or out of order",
        _5,
    ),
    # queues
    "batch-queues": UpgradeRule(
        _ERROR,
        "topics with batch consume queues, which this release does not read: consumers get none of their messages, or "
        "a record of many as one message with the batch as its body, at other queue offsets",
        f"{_DRAIN}; rstore get shows each message",
        _5,
    ),
    "rocksdb-queues": UpgradeRule(
        _WARNING,
        "consume queues in RocksDB, which this release does not read: it builds queues of files, from the first record "
        "of the log on, before consumers get any message of them",
        "expect a long first start, and space for the queues; remove the database from consumequeue/ afterwards",
        _5,
    ),
    "compacted-topics": UpgradeRule(
        _ERROR,
        "compacted topics, whose older messages this release does not read: it has those that the log still holds, and "
        "deletes them by retention",
        f"{_DRAIN}, or copy them into a topic of another kind",
        _5,
    ),
    "rocksdb-store": UpgradeRule(
        _ERROR,
        "timer messages, half messages or index entries in RocksDB (rocksdbstore/), which this release does not read",
        "start the newer release without timerRocksDBEnable, transRocksDBEnable and indexRocksDBEnable, and wait until "
        "what waits there is done",
        _5_4,
    ),
    "tiered-files": UpgradeRule(
        _ERROR,
        "older messages in tiered files, which this release does not read",
        f"{_DRAIN}; rstore dump tiered shows them",
        _5,
    ),
    # configuration
    "rocksdb-config": UpgradeRule(
        _ERROR,
        "topics, groups and offsets in RocksDB, which this release does not read: it goes by the files of config/",
        "rstore dump config --json shows each table: write it into its file, in config/",
        _5,
    ),
    "rocksdb-config-v2": UpgradeRule(
        _ERROR,
        "topics, groups and offsets in one RocksDB database (configManagerVersion=v2), which this release does not "
        "read: it goes by the files of config/",
        "rstore dump config --json shows each table: write it into its file, in config/",
        _5_3_3,
    ),
    "topic-attributes": UpgradeRule(
        _WARNING,
        "attributes of topics, which this release drops when it writes topics.json",
        "keep a copy of config/topics.json for the way back",
        _5,
    ),
    "group-attributes": UpgradeRule(
        _WARNING,
        "settings of groups (attributes, retry policy, order), which this release drops when it writes "
        "subscriptionGroup.json",
        "keep a copy of config/subscriptionGroup.json for the way back",
        _5,
    ),
    "static-topics": UpgradeRule(
        _ERROR,
        "static topics: this release does not know which of their queues are here, and serves queues by their local "
        "numbers and offsets",
        "let consumers read them first, and make them anew as plain topics",
        _5,
    ),
    "request-mode": UpgradeRule(
        _WARNING,
        "groups that this broker has consume by pop: with this release their consumers pull",
        "set offsets of these groups after the change: rstore offsets set",
        _5,
    ),
    "controller": UpgradeRule(
        _WARNING,
        "epochs of a controller, which this release neither reads nor continues: after its writes they are wrong",
        "move epochFileCheckpoint away before a controller's broker opens the store again; its slaves copy it anew",
        _5,
    ),
    "checkpoint-fields": UpgradeRule(
        _INFO,
        "fields of the checkpoint that this release leaves as they are, while the log grows",
        "on the way back the newer release takes them up: compare them with the log before (rstore check)",
    ),
    # broker.conf
    "acl-ignored": UpgradeRule(
        _ERROR,
        "aclEnable=true has no effect with this release, which has no plain ACL: without other settings everybody may "
        "send, read and administer",
        "set authenticationEnabled, authorizationEnabled and their providers; migrateAuthFromV1Enabled=true takes over "
        "plain_acl.yml",
    ),
    "plug-in": UpgradeRule(
        _ERROR,
        "messageStorePlugIn names a class that this release does not have: its broker does not start",
        "remove messageStorePlugIn",
        _5,
    ),
    "key-gone": UpgradeRule(
        _WARNING,
        "a key that this release does not read: its default is in force",
        "remove the line, or set the key that took its place",
    ),
    "key-new": UpgradeRule(
        _WARNING,
        "a key that has an effect with this release, and had none",
        "remove the line where that is not meant",
    ),
    "default-changed": UpgradeRule(
        _INFO,
        "keys that the file does not set have another default with this release",
        "set them where the old value is needed",
    ),
}
"""By code, in the order in which findings are shown."""
UPGRADE_CODES: dict[str, Code] = {
    name: Code(rule.severity, rule.what, rule.hint, Fix.NOTHING if rule.severity is _INFO else Fix.ADVISE)
    for name, rule in RULES.items()
}
