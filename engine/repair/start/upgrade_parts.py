"""What of a store beside its records a release does not read: parts of RocketMQ 5, tables of config/, what waits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from engine.errors import FormatError, StorageError
from engine.format import names, properties
from engine.format.hashing import java_hash
from engine.format.quantities import counted
from engine.format.rocksdb_config import DATABASE_V2
from engine.inspect.check.config import offsets_file
from engine.inspect.check.config import read_config as read_tables
from engine.inspect.dump.dump import MESSAGE
from engine.inspect.dump.timer_due import ROLLED, dump_due
from engine.inspect.finding import Findings
from engine.inspect.store import newer
from engine.inspect.store.config_files import read_config
from engine.inspect.store.config_shapes import GROUPS, TOPICS
from engine.inspect.store.queue_rows import QueueRows, is_real
from engine.inspect.store.timer_log import timer_files
from engine.inspect.store.timer_wheel import read_timer_check
from engine.repair.start.upgrade_rules import RULES

if TYPE_CHECKING:
    from engine.files.disk import Disk
    from engine.inspect.check.config import ConfigFiles
    from engine.inspect.store.survey import StoreFiles

_PARTS = {
    newer.BATCH_QUEUES: "batch-queues",
    newer.COMPACTION: "compacted-topics",
    newer.CONTROLLER: "controller",
    newer.ROCKSDB_STORE: "rocksdb-store",
    newer.ROCKSDB_POPS: "pop-store",
    newer.TIMER_SNAPSHOTS: "timer-snapshot",
}
"""The codes of those parts that need no more than to be there."""
_REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
_CHECKPOINT_TAG = "ck"
"""Source: PopAckConstants#REVIVE_GROUP, #CK_TAG."""
_OWN_OF_GROUP = {"consumeMessageOrderly": False, "groupSysFlag": 0, "consumeTimeoutMinute": 15}
"""What a group of RocketMQ 5 has that 4.9 has not, with its default. Source: SubscriptionGroupConfig."""
_POLICY, _COMPACTED = "cleanup.policy", "COMPACTION"
"""Source: TopicAttributes#CLEANUP_POLICY_ATTRIBUTE, CleanupPolicy."""
_NAMED = 3


def look_at_parts(disk: Disk, files: StoreFiles, release: str, findings: Findings) -> None:
    """Raises StorageError."""
    look = _Look(release, findings)
    tables = read_tables(disk, files.config, files.root, Findings())
    topics = {
        newer.BATCH_QUEUES: sorted(files.newer.batch_topics),
        newer.COMPACTION: sorted(name for name, one in _attributes(tables) if one.get(_POLICY) == _COMPACTED),
    }
    for part in files.newer.parts:
        if part.what in _PARTS:
            look.add(_PARTS[part.what], part.where, _names_of(topics.get(part.what, [])))
        elif part.what == newer.ROCKSDB_QUEUES:
            only = [one for one in files.queues if one.source is not None]
            if only or files.newer.no_queue_files:  # else all of them are in files, too
                look.add("rocksdb-queues", part.where, counted(len(only), "queue") if only else "")
        elif part.what == newer.ROCKSDB_CONFIG:
            look.add("rocksdb-config-v2" if DATABASE_V2 in part.where else "rocksdb-config", part.where)
        elif part.what == newer.TIERED and part.where.startswith(names.CONFIG):
            look.add("tiered-files", part.where)
    if look.wants("timer-waits"):
        waiting, pops = _waiting(disk, files)
        if waiting:
            detail = f"{counted(len(waiting), 'message')}, the first due at {_time(min(waiting))}"
            look.add("timer-waits", f"{names.TIMER_LOG}/", detail)
        pops += _unread_checkpoints(disk, files, tables)
        if pops:
            look.add("pop-waits", "the revive topic", counted(pops, "checkpoint"))
    if look.wants("topic-attributes"):
        _look_at_tables(disk, files, tables, look)


class _Look:
    """Notes what the release does not read."""

    def __init__(self, release: str, findings: Findings) -> None:
        self._release = release
        self._findings = findings

    def wants(self, code: str) -> bool:
        return RULES[code].applies(self._release)

    def add(self, code: str, where: str, detail: str = "") -> None:
        if self.wants(code):
            self._findings.add(code, where, where, detail)


def _waiting(disk: Disk, files: StoreFiles) -> tuple[list[int], int]:
    """When messages are due that the timer has (ms), and how many checkpoints of pops it has."""
    times: list[int] = []
    pops = 0
    try:
        check = read_timer_check(disk, files)
    except FormatError:
        check = None
    for row in dump_due(disk, files, timer_files(disk, files), check):
        if row.kind in (MESSAGE, ROLLED) and row.message is not None:
            if row.message.properties[properties.REAL_TOPIC].startswith(names.REVIVE_PREFIX):
                pops += row.message.properties.get(properties.TAGS) == _CHECKPOINT_TAG
            else:
                times.append(row.due_time or 0)
    return times, pops


def _unread_checkpoints(disk: Disk, files: StoreFiles, tables: ConfigFiles) -> int:
    """Checkpoints of pops in the revive topic that the broker has not settled. Source: PopReviveService."""
    offsets = tables.table(offsets_file(files.config, tables.present or ()))
    tag, count = java_hash(_CHECKPOINT_TAG), 0
    for queue in files.queues:
        topic, number = queue.queue
        if not topic.startswith(names.REVIVE_PREFIX) or files.newer.hides(topic):
            continue
        settled = offsets.get(f"{topic}@{_REVIVE_GROUP}")
        offset = settled.get(str(number), settled.get(number, 0)) if isinstance(settled, dict) else 0
        rows = QueueRows(disk, queue)
        low = max(rows.first, offset if isinstance(offset, int) else 0)
        for _, units in rows.chunks(low, max(low, rows.extent)):
            count += int((is_real(units) & (units["tags_code"] == tag)).sum())
    return count


def _look_at_tables(disk: Disk, files: StoreFiles, tables: ConfigFiles, look: _Look) -> None:
    """Tables of config/ that 4.9 does not have, and keys of those that it has."""
    topics = [name for name, _ in _attributes(tables)]
    groups = [name for name, one in tables.table(GROUPS).items() if isinstance(one, dict) and _has_own(one)]
    static = _table(disk, files, "topicQueueMapping.json", "topicQueueMappingInfoMap")
    orders = [key for key, one in _table(disk, files, "consumerOrderInfo.json", "table").items() if one]
    modes = _table(disk, files, "messageRequestMode.json", "messageRequestModeMap")
    pops = [f"{group} on {topic}" for topic, groups_of in modes.items() for group in _popping(groups_of)]
    for code, file, keys in (
        ("topic-attributes", TOPICS, topics),
        ("group-attributes", GROUPS, groups),
        ("static-topics", "topicQueueMapping.json", list(static)),
        ("pop-order", "consumerOrderInfo.json", orders),
        ("request-mode", "messageRequestMode.json", pops),
    ):
        if keys:
            look.add(code, f"{names.CONFIG}/{file}", f"{counted(len(keys), 'entry', 'entries')}: {_names_of(keys)}")


def _attributes(tables: ConfigFiles) -> Iterator[tuple[str, dict[str, Any]]]:
    """The topics that have attributes, with them."""
    for name, one in tables.table(TOPICS).items():
        attributes = one.get("attributes") if isinstance(one, dict) else None
        if isinstance(attributes, dict) and attributes:
            yield name, attributes


def _has_own(group: dict[str, Any]) -> bool:
    policy = group.get("groupRetryPolicy")
    own = policy if isinstance(policy, dict) else {}
    return (
        any(group.get(key, default) != default for key, default in _OWN_OF_GROUP.items())
        or bool(group.get("attributes"))
        or bool(group.get("subscriptionDataSet"))
        or bool(own.keys() - {"type"})
    )


def _popping(groups: object) -> Iterator[str]:
    """Source: MessageRequestModeManager, SetMessageRequestModeRequestBody."""
    for group, one in groups.items() if isinstance(groups, dict) else ():
        if isinstance(one, dict) and one.get("mode") == "POP":
            yield group


def _table(disk: Disk, files: StoreFiles, name: str, key: str) -> dict[str, Any]:
    """One table of a file that only RocketMQ 5 has; empty where it can't be read: a broker starts without it then."""
    with contextlib.suppress(StorageError, FormatError):
        value = read_config(disk, files.root, name).value
        table = value.get(key) if isinstance(value, dict) else None
        return table if isinstance(table, dict) else {}
    return {}


def _names_of(keys: list[str]) -> str:
    return ", ".join(keys[:_NAMED]) + (", …" if len(keys) > _NAMED else "")


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(timespec="seconds")
