"""Messages that a broker does not serve as config/ stands: files that are lost, topics and groups that hide messages.

A file of config/ that is not there may never have been: each is missed only where the store itself shows that a broker
has written it. Topics are durable before their first message; groups and offsets are written while consumers run, and
delayOffset.json once the first delayed message was due.

Sources: TopicConfigManager, PullMessageProcessor#processRequest (perm, readQueueNums, consumeEnable),
ScheduleMessageService.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.config import STORE_CONF
from engine.format import names
from engine.format.quantities import counted
from engine.inspect.check.config import BROKERS_OWN, offsets_file
from engine.inspect.store.config_files import BACKUP
from engine.inspect.store.config_shapes import DELAYS, GROUPS, TOPICS, as_flag, as_int
from engine.inspect.store.queue_rows import QueueRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine.files.disk import Disk
    from engine.inspect.check.config import ConfigFiles
    from engine.inspect.finding import Findings
    from engine.inspect.store.survey import QueueFiles, StoreFiles

READ = 4
"""Source: PermName#PERM_READ."""
_DEFAULT_QUEUES, _DEFAULT_PERM = 16, 6
"""Of a topic that doesn't say. Source: TopicConfig."""
_NAMED = 3
_OVERDUE_MS = 60_000
"""A delayed message that was due so long before the newest message was stored has been delivered."""
_BROKERS_QUEUES = ("rmq_sys_", "%lmq%", "%dlq%")
"""Topics (lower case) whose queues the broker reads itself, or that have their permission from Apache's own default."""
_OWN_GROUPS = ("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS", "CID_RMQ_SYS_", "CID_SYS_RMQ")


def check_served(
    disk: Disk, files: StoreFiles, config: ConfigFiles, findings: Findings, *, live: bool, bare: bool = False
) -> None:
    """Note what is missing and what is hidden. Looks at queues' ends alone. Raises StorageError.

    Args:
        disk: how files are reached.
        files: the store's.
        config: what was read of config/.
        findings: where to note it.
        live: a broker has the store: it may be writing these files just now, so none of them is missed.
        bare: name a store without config/, too: one that no broker has had yet has none.
    """
    if files.newer.no_config_files:
        return
    if not live and (config.present is not None or bare):
        _missing(disk, files, config, findings)
    _hidden(disk, files, config, findings)
    _disabled(config, findings)


def hidden_queues(topic: str, settings: dict[str, object], queues: Iterable[QueueFiles]) -> list[QueueFiles]:
    """The queues of a topic that no client may read, as its `settings` in topics.json say."""
    if topic == names.SCHEDULE_TOPIC or topic.lower().startswith(_BROKERS_QUEUES):
        return []
    perm, read = as_int(settings.get("perm")), as_int(settings.get("readQueueNums"))
    if not (_DEFAULT_PERM if perm is None else perm) & READ:
        return list(queues)
    most = _DEFAULT_QUEUES if read is None else read
    return [one for one in queues if one.queue.queue_id >= most]


def messages_of(disk: Disk, queues: Iterable[QueueFiles]) -> int:
    """How many units these queues hold. Raises StorageError."""
    return sum(rows.extent - rows.first for rows in (QueueRows(disk, queue) for queue in queues))


def is_own_group(group: str) -> bool:
    """Whether each broker has it by itself. Source: SubscriptionGroupManager#init, MixAll#isSysConsumerGroup."""
    return group.startswith(_OWN_GROUPS)


def _holding(disk: Disk, queues: Iterable[QueueFiles]) -> Sequence[QueueFiles]:
    return [queue for queue in queues if messages_of(disk, [queue])]


def _missing(disk: Disk, files: StoreFiles, config: ConfigFiles, findings: Findings) -> None:
    present = config.present or frozenset()
    offsets = offsets_file(files.config, present)
    lost = [name for name in (TOPICS, offsets, DELAYS, GROUPS) if not present & {name, name + BACKUP}]
    if not lost or not files.log:
        return
    if config.present is None:
        ordinary = {queue.queue.topic for queue in _holding(disk, files.queues)}
        if ordinary:
            findings.add("config-none", names.CONFIG, names.CONFIG, _some(ordinary, "topic"))
        return
    brokers = _tables_of_a_broker(disk, files, present, offsets)
    for name in lost:
        code, why = _evidence(disk, files, config, name, offsets)
        if code:
            code = code if brokers else "config-absent"
            findings.add(code, f"config/{name}", f"config/{name}", why)


def _tables_of_a_broker(disk: Disk, files: StoreFiles, present: frozenset[str], offsets: str) -> bool:
    """Whether a broker has kept config/, which writes all of them: not a message store alone, nor rstore."""
    names_of_it = {TOPICS, GROUPS}
    if not disk.exists(os.path.join(files.root, STORE_CONF)):  # offsets set writes this one in a store of rstore's own
        names_of_it.add(offsets)
    return bool(present & {form for name in names_of_it for form in (name, name + BACKUP)})


def _evidence(disk: Disk, files: StoreFiles, config: ConfigFiles, name: str, offsets: str) -> tuple[str, str]:
    """Which finding a lost file is ("" for none), and what shows that it was there."""
    if name == TOPICS:
        topics = {q.queue.topic for q in files.queues if not _is_brokers(q.queue.topic)}
        held = {q.queue.topic for q in _holding(disk, (q for q in files.queues if q.queue.topic in topics))}
        return ("config-missing", _some(held, "topic") + " in its queues") if held else ("", "")
    tables = config.tables.get(offsets, {})
    read = {key.rpartition("@")[2] for table in tables.values() for key in table}
    if name == GROUPS:
        read = {group for group in read if not is_own_group(group) and not names.is_lmq(group)}
        return ("config-absent", _some(read, "group") + f" in config/{offsets}") if read else ("", "")
    if name == offsets:
        known = {group for group in config.table(GROUPS) if not is_own_group(group)}
        retries = [q for q in files.queues if q.queue.topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX))]
        held = {q.queue.topic for q in _holding(disk, retries)}
        if held:
            return "config-missing", _some(held, "topic") + " of messages that groups sent back"
        return ("config-absent", _some(known, "group") + f" in config/{GROUPS}") if known else ("", "")
    return _delayed(disk, files)


def _delayed(disk: Disk, files: StoreFiles) -> tuple[str, str]:
    held = _holding(disk, (q for q in files.queues if q.queue.topic == names.SCHEDULE_TOPIC))
    if not held:
        return "", ""
    count = messages_of(disk, held)
    newest = files.checkpoint.physic_msg_timestamp
    for queue in held:
        rows = QueueRows(disk, queue)
        due = int(rows.read(rows.first, rows.first + 1)["tags_code"][0])
        if 0 < due < newest - _OVERDUE_MS:
            return "config-missing", f"{counted(count, 'delayed message')}, some of them due"
    return "config-absent", f"{counted(count, 'delayed message')}"


def _hidden(disk: Disk, files: StoreFiles, config: ConfigFiles, findings: Findings) -> None:
    by_topic: dict[str, list[QueueFiles]] = {}
    for queue in files.queues:
        by_topic.setdefault(queue.queue.topic, []).append(queue)
    for topic, settings in config.table(TOPICS).items():
        hidden = hidden_queues(topic, settings, by_topic.get(topic, ()))
        count = messages_of(disk, hidden)
        if count:
            where = f"config/{TOPICS} {topic}"
            perm, read = settings.get("perm", _DEFAULT_PERM), settings.get("readQueueNums", _DEFAULT_QUEUES)
            detail = (
                f"{counted(count, 'message')} in {counted(len(hidden), 'queue')}; perm {perm}, readQueueNums {read}"
            )
            findings.add("topic-hidden", topic, where, detail)


def _disabled(config: ConfigFiles, findings: Findings) -> None:
    for group, settings in config.table(GROUPS).items():
        if not as_flag(settings.get("consumeEnable")):
            findings.add("group-disabled", group, f"config/{GROUPS} {group}", "consumeEnable is false")


def _is_brokers(topic: str) -> bool:
    return names.is_system_topic(topic) or topic in BROKERS_OWN


def _some(names_of_them: Iterable[str], what: str) -> str:
    listed = sorted(names_of_them)
    return (
        f"{len(listed)} {what}{'' if len(listed) == 1 else 's'}: "
        + ", ".join(listed[:_NAMED])
        + (", …" if len(listed) > _NAMED else "")
    )
