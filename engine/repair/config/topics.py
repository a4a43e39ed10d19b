"""topics.json and subscriptionGroup.json made again: what is known of each entry, and what the queues show.

What a file holds beside (`attributes`, keys of later versions) stays. Topics that each broker makes for itself need no
entry: it adds them when it starts (TopicConfigManager's constructor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.format import names
from engine.inspect.check.served import READ, is_own_group
from engine.inspect.store.batch_topics import BATCH_ATTRIBUTES
from engine.inspect.store.config_shapes import GROUP_TABLE, TOPIC_TABLE, as_int

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.repair.config.evidence import Evidence
    from engine.repair.config.sources import Source

_OWN_QUEUES = {names.SCHEDULE_TOPIC: 18, "BenchmarkTest": 1024}
"""Topics that a broker makes with so many queues. Source: TopicConfigManager."""


def topic_json(topic: str, queues: int) -> dict[str, Any]:
    """A topic as a broker writes it. Source: TopicConfig."""
    return {
        "order": False,
        "perm": 6,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }


def group_json(group: str, retry_queues: int = 1) -> dict[str, Any]:
    """A group as a broker writes it. Source: SubscriptionGroupConfig."""
    return {
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "groupName": group,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": retry_queues,
        "whichBrokerWhenConsumeSlowly": 1,
    }


def rebuilt_topics(
    sources: Sequence[Source], evidence: Evidence, *, intact: bool, forced: str | None
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The table, and what changes in it, one line each.

    Args:
        sources: of topics.json, freshest first.
        evidence: what the queues hold.
        intact: nothing is changed but the topic `forced`.
        forced: a topic that is to be readable, whatever its configuration says.
    """
    table, origin = _merged(sources, TOPIC_TABLE)
    lines: list[str] = []
    for topic, settings in table.items():
        if settings.get("topicName") not in (None, topic) or "topicName" not in settings:
            settings["topicName"] = topic
    needed = evidence.topics
    for topic, count in sorted(needed.items()):
        known = topic in table
        if not known and not intact:
            table[topic] = topic_json(topic, max(count, _OWN_QUEUES.get(topic, 0)))
            lines.append(f"{topic}: readQueueNums {table[topic]['readQueueNums']}, from its consume queues")
            if topic in evidence.batch_topics:
                table[topic]["attributes"] = dict(BATCH_ATTRIBUTES)
                lines.append(f"{topic}: queue.type BatchCQ, as its queues are")
        elif known and (not intact or topic == forced) and not names.is_lmq(topic):
            lines += _widen(topic, table[topic], count, stale=not intact or topic == forced)
    if forced is not None and forced in needed:
        settings = table.setdefault(forced, topic_json(forced, needed[forced]))
        perm = as_int(settings.get("perm"))
        if perm is not None and not perm & READ:
            settings["perm"] = perm | READ
            lines.append(f"{forced}: perm {perm} becomes {perm | READ}")
    lines += [f"{topic}: from {where}" for topic, where in origin.items() if where]
    return table, lines


def _widen(topic: str, settings: dict[str, Any], count: int, *, stale: bool) -> list[str]:
    """As many queues as hold messages: what was kept elsewhere may be older than the newest of them."""
    lines = []
    for name in ("readQueueNums", "writeQueueNums"):
        known = as_int(settings.get(name, 16 if stale else None))
        if known is None or (
            known < count and (name == "readQueueNums" or known == as_int(settings.get("readQueueNums")))
        ):
            settings[name] = count
            lines.append(f"{topic}: {name} {'unknown' if known is None else known} becomes {count}")
        elif name not in settings:
            settings[name] = count
            lines.append(f"{topic}: {name} unknown becomes {count}")
    return lines


def rebuilt_groups(
    sources: Sequence[Source],
    evidence: Evidence,
    readers: set[str],
    *,
    intact: bool,
    forced: str | None,
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """As `rebuilt_topics`. `readers`: groups that have offsets, or are named by the messages they sent back."""
    table, origin = _merged(sources, GROUP_TABLE)
    lines: list[str] = []
    for group, settings in table.items():
        if settings.get("groupName") != group:
            settings["groupName"] = group
    counts = evidence.groups
    for group in sorted(counts.keys() | readers) if not intact else ():
        if group not in table and not is_own_group(group) and not names.is_lmq(group):
            table[group] = group_json(group, counts.get(group, 1))
            lines.append(f"{group}: with a broker's defaults")
    if forced is not None:
        settings = table.setdefault(forced, group_json(forced))
        if settings.get("consumeEnable", True) is not True:
            settings["consumeEnable"] = True
            lines.append(f"{forced}: consumeEnable becomes true")
    lines += [f"{group}: from {where}" for group, where in origin.items() if where]
    return table, lines


def _merged(sources: Sequence[Source], key: str) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Each entry from the freshest source that has it; where it is from, "" for the file itself."""
    table: dict[str, dict[str, Any]] = {}
    origin: dict[str, str] = {}
    for number, source in enumerate(sources):
        for name, settings in source.table.tables[key].items():
            if name not in table:
                table[name] = dict(settings)
                origin[name] = source.label if number or not source.is_file else ""
    return table, origin
